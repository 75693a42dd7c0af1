-- include: schedule
-- upgrade: bring what an older release stored up to date, a step at a time. Several processes may
-- do so at once: how far a crawl is, is stored. Before the last step of the last crawl, no process
-- uses the store.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: how many tasks, and how many queues; 0: all crawls are complete.
-- Returns 1 while there is more to do, else 0.
if call('HGET', base .. META, 'format') == tostring(FORMAT) then
  return 0
elseif tonumber(ARGV[5]) == 0 then
  call('HSET', base .. META, 'format', FORMAT)
  call('DEL', base .. K_UPGRADE)
  return 0
end
-- Format 2: the tasks of each queue are listed by number, and queues by key; pending tasks are
-- counted by priority (F8), and queues by state (C1): commit counts a queue that was not.
local done = tonumber(call('HGET', base .. K_UPGRADE, crawl_number)) or 0
local last_number = max(C[C_LAST_TASK], C[C_LAST_QUEUE])
local last = min(done + tonumber(ARGV[5]), last_number)
if done == 0 then
  C[C_CRITICAL], C[C_HIGH], C[C_LOW] = 0, 0, 0
end
for number = done + 1, min(last, C[C_LAST_TASK]) do
  local t = task_by_number(number)
  append_to_queue_tasks(t[T_QUEUE], pack('>I5', number))
  if t[T_STATE] == PENDING then
    count_priority(t[T_ORDER], 1)
  end
end
for number = done + 1, min(last, C[C_LAST_QUEUE]) do
  add_member(prefix .. K_QUEUE_NAMES, name_of_queue(queue_by_number(number)), 0)
end
commit()
call('HSET', base .. K_UPGRADE, crawl_number, last)
return last < last_number and 1 or 0
