// Tells MAM what opencode says of its own agent: it waits for a permission, that is answered, its turn has ended.
import { spawn } from "node:child_process"

const WAITS_MS = 1000 // what --auto answers has not waited

export default {
  id: "mam",
  tui: async (api) => {
    let said = Promise.resolve() // one after the other: each word replaces the one before
    const say = (word) => {
      const run = (done) =>
        spawn(process.env.MAM_COMMAND, ["agent-signal", word], { stdio: "ignore" }).on("error", done).on("exit", done)
      said = said.then(() => new Promise(run)).catch(() => {}) // a hook never disturbs its agent
    }
    const waiting = new Map()
    let told = false
    api.event.on("permission.asked", ({ properties }) => {
      const tell = () => {
        told = true
        say("permission")
      }
      waiting.set(properties.id, setTimeout(tell, WAITS_MS))
    })
    api.event.on("permission.replied", ({ properties }) => {
      clearTimeout(waiting.get(properties.requestID))
      waiting.delete(properties.requestID)
      if (told && waiting.size === 0) {
        told = false
        say("permission_answered")
      }
    })

    const subagents = new Set() // the end of their turns is not the end of the agent's
    for (const type of ["session.created", "session.updated"])
      api.event.on(type, ({ properties: { info } }) => info.parentID && subagents.add(info.id))
    api.event.on("session.idle", ({ properties }) => {
      if (subagents.has(properties.sessionID)) return
      for (const timer of waiting.values()) clearTimeout(timer)
      waiting.clear() // what an interrupt leaves unanswered waits no more
      told = false
      say("turn_ended")
    })
  },
}
