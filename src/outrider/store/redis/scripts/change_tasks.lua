-- include: leases
-- change_tasks: drop, replay, purge or forget tasks.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the verb. ARGV[6]: the state that a task must have ("": any). ARGV[7]: msgpack of the
-- tasks' numbers. ARGV[8]: who acts (see `sign`).
-- Returns how many tasks were changed.
local verbs = {
  drop = function(number, t, q)
    t[T_REASON], t[T_FINISHED] = 'operator', now
    remove_entry(q, t[T_LANE], entry_of(number, t))
    set_state(number, t, q, DROPPED)
    refresh(q, false)
  end,
  replay = function(number, t, q)
    reset_attempts(t)
    set_state(number, t, q, PENDING)
    enqueue(number, t, q, now)
    work_added()
    refresh(q, false)
  end,
  purge = function(number, t, q)
    t[T_REASON] = 'purged'
    set_state(number, t, q, DROPPED)
  end,
  forget = function(number, t, q)
    if t[T_STATE] == LEASED then
      release_lease(number, t)
    end
    local was_pending = t[T_STATE] == PENDING
    t[T_REASON], t[T_FINISHED] = FORGOTTEN, now
    C[C_FORGOTTEN] = C[C_FORGOTTEN] + 1
    if was_pending then
      remove_entry(q, t[T_LANE], entry_of(number, t))
    end
    set_state(number, t, q, DROPPED)
    if was_pending then
      refresh(q, false)
    end
  end,
}
if not C then -- I1
  return 0
end
check_memory()
sign(ARGV[8])
local change, wanted, changed = verbs[ARGV[5]], tonumber(ARGV[6]), 0
if C[C_STATUS] ~= 'cancelled' then
  for _, number in ipairs(decode(ARGV[7])) do
    local t = task_by_number(number)
    if t and (wanted or t[T_STATE]) == t[T_STATE] and not is_forgotten(t) then
      change(number, t, queue_by_number(t[T_QUEUE]))
      changed = changed + 1
    end
  end
end
commit()
return changed
