const { setTimeout } = require("node:timers/promises");

module.exports = () => setTimeout(1);
