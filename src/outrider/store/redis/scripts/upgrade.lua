-- include: schedule
-- upgrade: bring what an older release stored up to date, a step at a time. Several processes may
-- do so at once: how far a crawl is, is stored. Before the last step of the last crawl, no process
-- uses the store.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: how many tasks; 0: all crawls are complete.
-- Returns 1 while there is more to do, else 0.
if call('HGET', base .. META, 'format') == tostring(FORMAT) then
  return 0
elseif tonumber(ARGV[5]) == 0 then
  call('HSET', base .. META, 'format', FORMAT)
  call('DEL', base .. K_UPGRADE)
  return 0
end
-- Format 2: the tasks of each queue are listed by number.
local done = tonumber(call('HGET', base .. K_UPGRADE, crawl_number)) or 0
local last = min(done + tonumber(ARGV[5]), C[C_LAST_TASK])
for number = done + 1, last do
  append_to_queue_tasks(task_by_number(number)[T_QUEUE], pack('>I5', number))
end
write_queue_tasks()
call('HSET', base .. K_UPGRADE, crawl_number, last)
return last < C[C_LAST_TASK] and 1 or 0
