-- include: schedule
-- put_values: write shared values.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: msgpack of each value's label, its text, and the number of the value it replaces (-1:
-- any).
-- Returns the number of each value; 0: another value is stored under the label, or there is no crawl.
local values, numbers = decode(ARGV[5]), {}

local function put(label, text, seen)
  local stored = call('HGET', prefix .. K_VALUES, label)
  local old = stored and decode(stored) or { 0, 0, '' }
  if seen >= 0 and seen ~= old[1] then
    return 0
  elseif old[3] == text then
    return old[1]
  end
  C[C_LAST_VALUE] = C[C_LAST_VALUE] + 1
  call('HSET', prefix .. K_VALUES, label, encode({ C[C_LAST_VALUE], now, text }))
  call('ZADD', prefix .. K_VALUE_NUMBERS, C[C_LAST_VALUE], label)
  return C[C_LAST_VALUE]
end

if name == '' then -- N1: the values of the store itself, of no crawl
  open_crawl()
elseif not C then -- I1
  for position = 1, #values do
    numbers[position] = 0
  end
  return numbers
end
check_memory()
for position, value in ipairs(values) do
  numbers[position] = put(unpack(value))
end
commit()
return numbers
