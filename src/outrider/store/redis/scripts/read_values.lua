-- include: crawl
-- read_values: read shared values in the order of their numbers.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the last number the caller has. ARGV[6]: how many at most.
-- Returns two values each: the label, and msgpack of number, time and text. Fewer if they are long;
-- none only if there are none.
local found, size = {}, 0
if not C then
  return found
end
local key, after = prefix .. K_VALUE_NUMBERS, '(' .. ARGV[5]
for _, label in ipairs(call('ZRANGEBYSCORE', key, after, '+inf', 'LIMIT', 0, ARGV[6])) do
  local value = call('HGET', prefix .. K_VALUES, label)
  found[#found + 1] = label
  found[#found + 1] = value
  size = size + #value
  if size > MAX_VALUES_BYTES then
    break
  end
end
return found
