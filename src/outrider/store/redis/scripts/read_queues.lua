-- include: queue_view
-- read_queues: read what views show of queues.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the digest of a key; or "", and ARGV[6] and ARGV[7] the first and the last number.
-- Returns the crawl's row, the time, and the four values of append_queue_view per queue; nil and
-- the time if there is no crawl.
if not C then
  return { false, now }
end
local found = { encode(C), now }
if ARGV[5] ~= '' then
  local number = index_find(K_KEYS, C_KEY_BUCKETS, ARGV[5])
  if number then
    append_queue_view(queue_by_number(number), found)
  end
else
  for number = ARGV[6], min(ARGV[7], C[C_LAST_QUEUE]) do
    append_queue_view(queue_by_number(number), found)
  end
end
return found
