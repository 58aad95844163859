// As the project's page on performance has it.
const concurrentJobs = 24;

module.exports = {
  worker: {
    taskDirectory: `${__dirname}/tasks`,
    concurrentJobs,
    maxPoolSize: concurrentJobs + 1,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};
