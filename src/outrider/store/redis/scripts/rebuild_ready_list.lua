-- include: schedule
-- rebuild_ready_list: compute ready keys again after the order among queues changed.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5] and ARGV[6]: the first and the last number of the queues.
-- Returns 1 if there are queues of higher numbers, else 0.
check_memory()
for number = ARGV[5], min(ARGV[6], C[C_LAST_QUEUE]) do
  local q = queue_by_number(number)
  if q[Q_LIST_STATE] == READY then
    update_ready_keys(q, 0)
  end
end
commit()
return min(ARGV[6], C[C_LAST_QUEUE]) < C[C_LAST_QUEUE] and 1 or 0
