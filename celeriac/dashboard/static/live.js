// Keeps an open page current: asks every 2 s whether it has changed, and changes what is shown in place. What the
// reader has ticked, typed, opened, selected or scrolled to stays. Without this module every page works all the same.

const EVERY = 2000, AT_MOST = 16000, APART = 1.5
const policy = window.trustedTypes?.createPolicy("celeriac", { createHTML: (html) => html }) ?? { createHTML: (html) => html }
const light = document.getElementById("light")
const clock = document.querySelector("time[data-clock]")
const ahead = clock ? Date.parse(clock.dateTime) - Date.now() : 0
const state = { tag: null, paused: false, wait: EVERY, heard: Date.now(), timer: 0, asking: false, stale: false, pressed: null }

// The reader's own: what the server says of these does not count once the page is open.
const KEPT = new Set(["open", "value", "checked", "selected"])
// Of what is `data-kept` the live answers say nothing: it is the first answer's.
// Nobody has typed a hidden value: it goes with the label of its button.
const kept = (node, name) => KEPT.has(name) && !(name === "value" && node.type === "hidden")

const key = (node) => (node.nodeType === 1 ? node.getAttribute("id") : null)
const blank = (node) => node.nodeType === 3 && !node.nodeValue.trim()

function patch(old, fresh) {
  if (old.nodeType === 3) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue
    return
  }
  if (old.nodeType !== 1 || old.hasAttribute("data-kept") || old.isEqualNode(fresh)) return
  for (const { name, value } of fresh.attributes)
    if (!kept(old, name) && old.getAttribute(name) !== value) old.setAttribute(name, value)
  for (const { name } of [...old.attributes])
    if (!kept(old, name) && !fresh.hasAttribute(name)) old.removeAttribute(name)
  if (old.hasAttribute("data-frozen")) rows(old, fresh)
  else children(old, fresh)
}

function children(old, fresh) {
  const keyed = new Map([...old.childNodes].filter(key).map((node) => [key(node), node]))
  let at = old.firstChild
  for (const node of [...fresh.childNodes]) {
    let match = key(node) ? keyed.get(key(node)) : alike(at, node)
    if (match?.nodeName !== node.nodeName) match = undefined
    if (!match) {
      old.insertBefore(document.importNode(node, true), at)
      continue
    }
    while (at && at !== match && !key(at)) at = dropped(at)
    if (at === match) at = at.nextSibling
    else old.insertBefore(match, at)
    keyed.delete(key(match))
    patch(match, node)
  }
  while (at) at = dropped(at)
}

function dropped(node) {
  const next = node.nextSibling
  node.remove()
  return next
}

function alike(at, node) {
  for (; at; at = at.nextSibling)
    if (!key(at) && at.nodeName === node.nodeName && blank(at) === blank(node)) return at
}

// A list's rows change where they stand; which there are, and their order, stays until the reader asks for it.
function rows(old, fresh) {
  const shown = new Map([...old.rows].map((row) => [key(row), row]))
  let more = 0
  for (const row of fresh.rows)
    if (shown.has(key(row))) patch(shown.get(key(row)), row), shown.get(key(row)).classList.remove("gone"), shown.delete(key(row))
    else more += 1
  for (const row of shown.values()) row.classList.add("gone")
  const newer = document.getElementById("newer")
  if (!newer || old.dataset.frozen !== "newer") return
  newer.hidden = !more
  const said = `${more === fresh.rows.length ? more + " or more" : more} newer, show`
  if (more && newer.firstElementChild.textContent !== said) newer.firstElementChild.textContent = said
}

// What is spoken: totals, at most every 10 s, never row by row.
const failures = () => Number(document.querySelector("#count-failed, #n-failed")?.textContent.replace(/\D/g, "") ?? 0)
const spoken = { n: failures(), at: 0 }

function speak() {
  const more = failures() - spoken.n
  if (!more || Date.now() - spoken.at < 10000) return
  if (more > 0) document.getElementById("said").textContent = `${more} more failed`
  spoken.n += more
  spoken.at = Date.now()
}

function show(word, text) {
  if (!light || light.textContent === text) return
  light.dataset.light = word
  light.textContent = text
}

// While the server or Postgres is away nothing can be changed: buttons are off, and say why.
const AWAY = "There is no answer just now: nothing can be changed"

function offer(on) {
  for (const button of document.querySelectorAll("#live form[method=post] button")) {
    if (on === !button.disabled) continue
    button.disabled = !on
    if (on) button.removeAttribute("title")
    else button.title = AWAY
  }
}

async function look() {
  clearTimeout(state.timer)
  if (state.paused || state.pressed || document.hidden || state.asking) return
  state.asking = true
  try {
    const headers = { Live: "1", ...(state.tag ? { "If-None-Match": state.tag } : {}) }
    const answer = await fetch(location.href.split("#")[0], { headers, cache: "no-store", signal: AbortSignal.timeout(10000) })
    if (answer.status === 401) return location.reload()
    if (!answer.ok && answer.status !== 304) throw new Error(String(answer.status))
    if (answer.status !== 304) {
      const page = new DOMParser().parseFromString(policy.createHTML(await answer.text()), "text/html")
      const [old, fresh] = [document.getElementById("live"), page.getElementById("live")]
      const newer = document.getElementById("newer")?.cloneNode(true)
      if (newer && fresh.querySelector("#newer")) fresh.querySelector("#newer").replaceWith(newer)
      patch(old, fresh)
      state.tag = answer.headers.get("ETag")
      speak()
    }
    Object.assign(state, { wait: EVERY, heard: Date.now(), stale: false })
  } catch (error) {
    state.stale = true
    // Nobody there to be spared: who is back is seen at once. Who answers with errors, or not in time, is asked less often.
    state.wait = error instanceof TypeError ? EVERY : Math.min(AT_MOST, state.wait * 2)
  } finally {
    state.asking = false
  }
  document.body.classList.toggle("stale", state.stale)
  offer(!state.stale)
  tick()
  state.timer = setTimeout(look, state.wait)
}

const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]]

// Whole seconds, as `words.took` has them.
function took(seconds) {
  if (seconds < 10) return `${seconds} s`
  let left = Math.round(seconds)
  const parts = []
  for (const [size, name] of UNITS) {
    const n = Math.floor(left / size)
    left %= size
    if (n || parts.length) parts.push([n, name])
  }
  return parts.slice(0, 2).filter(([n]) => n).map((part) => part.join(" ")).join(" ")
}

function tick() {
  const now = Date.now() + ahead
  for (const time of document.querySelectorAll("time[data-ago]")) {
    const seconds = (now - Date.parse(time.dateTime)) / 1000
    const text = seconds > -APART ? took(Math.floor(Math.max(seconds, 0))) : `in ${took(Math.ceil(-seconds))}`
    if (time.textContent !== text) time.textContent = text
  }
  if (clock) clock.textContent = new Date(now).toLocaleTimeString("sv", { timeZone: light?.dataset.zone })
  if (state.paused) show("paused", "paused")
  else if (state.stale) show("stale", `stale ${took(Math.floor((Date.now() - state.heard) / 1000))}`)
  else show("live", "live")
}

function pause() {
  state.paused = !state.paused
  if (state.paused) offer(true)
  tick()
  if (!state.paused) look()
}

// A button that was pressed says so until the answer comes, and a second press does nothing.
addEventListener("submit", (event) => {
  const button = event.submitter
  if (event.target.method !== "post" || !button) return
  if (state.pressed) return event.preventDefault()
  state.pressed = button
  button.dataset.idle = button.textContent
  button.textContent = `${button.textContent.replace(/^Run\b/, "Running")} …`
  button.setAttribute("aria-busy", "true")
})

// Back from the answer, as the reader left it.
addEventListener("pageshow", (event) => {
  const button = state.pressed
  if (!event.persisted || !button) return
  button.textContent = button.dataset.idle
  button.removeAttribute("aria-busy")
  state.pressed = null
  look()
})

// Keys: off within fields, and wherever the reader has switched them off.
let going = 0

function row(step) {
  const all = [...document.querySelectorAll("#live tbody tr")]
  const at = all.indexOf(document.activeElement?.closest("tbody tr"))
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + step))]
  next?.querySelector("a, input, button")?.focus()
}

const KEYS = {
  "/": () => document.getElementById("go")?.focus(),
  ".": look,
  p: pause,
  j: () => row(1),
  k: () => row(-1),
  x: () => document.activeElement?.closest("tr")?.querySelector("input[type=checkbox]")?.click(),
  g: () => (going = Date.now()),
  "?": () => document.getElementById("help")?.showModal(),
}

document.addEventListener("keydown", (event) => {
  const field = event.target.closest?.("input:not([type=checkbox]), textarea, select, dialog")
  if (field || event.ctrlKey || event.metaKey || event.altKey || localStorage.getItem("celeriac-keys") === "off") return
  const page = Date.now() - going < 1500 && document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`)
  const act = page ? () => page.click() : KEYS[event.key]
  if (!act) return
  event.preventDefault()
  if (event.key !== "g" || page) going = 0
  act()
})

const keys = document.getElementById("keys")
if (keys) {
  keys.checked = localStorage.getItem("celeriac-keys") !== "off"
  keys.addEventListener("change", () => localStorage.setItem("celeriac-keys", keys.checked ? "on" : "off"))
}

const zones = document.querySelector("select[data-zone]")
const own = Intl.DateTimeFormat().resolvedOptions().timeZone
if (zones && ![...zones.options].some((option) => option.value === own)) zones.add(new Option(own, own))

if (light && document.querySelector("#live:not([data-still])")) {
  light.hidden = false
  light.addEventListener("click", pause)
  document.addEventListener("visibilitychange", () => document.hidden || look())
  setInterval(tick, 1000)
  tick()
  state.timer = setTimeout(look, EVERY)
}

// A link that signs in.
document.querySelector("form[data-at-once]")?.requestSubmit()
