-- Queues: 5 the digest of a key, or "" and 6 the first and 7 the last number. Answers with the
-- crawl's row and the moment, then four values a queue.
if not C then
  return { false, now }
end
local found = { encode(C), now }
if ARGV[5] ~= '' then
  local number = find(K_KEYS, C_KEY_BUCKETS, ARGV[5])
  if number then
    shown(queue_of(number), found)
  end
else
  for number = ARGV[6], min(ARGV[7], C[C_QUEUES]) do
    shown(queue_of(number), found)
  end
end
return found
