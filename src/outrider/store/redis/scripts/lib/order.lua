-- include: state
-- Order keys: two bytes of precedence, eight of priority, six of tie, five of the task's number,
-- which sort as these do. Lua compares strings by the server's locale, so bytes are compared as
-- numbers.
local function is_before(entry, other)
  local a, e = unpack_bytes('>I6', entry), unpack_bytes('>I6', other)
  if a ~= e then
    return a < e
  end
  local b, c, d = unpack_bytes('>I6I6I3', entry, 7)
  local f, g, h = unpack_bytes('>I6I6I3', other, 7)
  if b ~= f then
    return b < f
  elseif c ~= g then
    return c < g
  end
  return d < h
end

-- Tell whether a key of a ready list, or of the inactive list, comes before another of that list.
local function is_key_before(key, other)
  for position = 1, #key, 2 do
    local a, b = unpack_bytes('>I2', key, position), unpack_bytes('>I2', other, position)
    if a ~= b then
      return a < b
    end
  end
  return false
end

-- The priority of eight bytes that sort as it does.
local function priority_of_bytes(bytes)
  local bits = { byte(bytes, 1, 8) }
  local is_negative = bits[1] < 128
  for position = 1, 8 do
    bits[position] = is_negative and 255 - bits[position] or bits[position]
  end
  bits[1] = is_negative and bits[1] or bits[1] - 128
  return (unpack_bytes('>d', string.char(unpack(bits))))
end

-- Eight bytes that sort as a priority does.
local function bytes_of_priority(priority)
  local bits = { byte(pack('>d', priority), 1, 8) }
  local is_negative = bits[1] >= 128
  for position = 1, 8 do
    bits[position] = is_negative and 255 - bits[position] or bits[position]
  end
  bits[1] = is_negative and bits[1] or bits[1] + 128
  return string.char(unpack(bits))
end

-- C5: ten bytes of precedence and priority, with the priority worse by a discount.
local function discounted(rank, discount)
  local priority = priority_of_bytes(sub(rank, 3, 10))
  return sub(rank, 1, 2) .. bytes_of_priority(priority + discount)
end

-- C9: tell whether the entry at the top of a lane is better than a priority (eight bytes).
local function is_below(top, priority)
  if top == '' then
    return false
  end
  local a, b = unpack_bytes('>I4I4', top, 3)
  local c, d = unpack_bytes('>I4I4', priority)
  return a < c or (a == c and b < d)
end
