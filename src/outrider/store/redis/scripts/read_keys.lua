-- include: schedule
-- read_keys: read the keys of queues.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: msgpack of their numbers.
-- Returns their keys; nil: a queue was removed with its crawl.
local keys = {}
for position, number in ipairs(decode(ARGV[5])) do
  if not C or number > C[C_LAST_QUEUE] then
    return false
  end
  keys[position] = peek_queue(number)[Q_KEY]
end
return keys
