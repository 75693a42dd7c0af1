-- Order keys: two bytes of precedence, eight of priority, six of tie, five of the task's number. They
-- sort as what they stand for. Lua compares strings by the server's locale, so bytes are compared as
-- numbers.
local function is_before(entry, other)
  local a, e = parts('>I6', entry), parts('>I6', other)
  if a ~= e then
    return a < e
  end
  local b, c, d = parts('>I6I6I3', entry, 7)
  local f, g, h = parts('>I6I6I3', other, 7)
  if b ~= f then
    return b < f
  elseif c ~= g then
    return c < g
  end
  return d < h
end

-- The priority behind eight bytes that sort as it does.
local function priority_in(sorted)
  local bits = { byte(sorted, 1, 8) }
  local is_negative = bits[1] < 128
  for place = 1, 8 do
    bits[place] = is_negative and 255 - bits[place] or bits[place]
  end
  bits[1] = is_negative and bits[1] or bits[1] - 128
  return (parts('>d', string.char(unpack(bits))))
end

local function sorted(priority)
  local bits = { byte(pack('>d', priority), 1, 8) }
  local is_negative = bits[1] >= 128
  for place = 1, 8 do
    bits[place] = is_negative and 255 - bits[place] or bits[place]
  end
  bits[1] = is_negative and bits[1] or bits[1] + 128
  return string.char(unpack(bits))
end

-- C5: ten bytes of precedence and priority, the priority that much worse.
local function moved(rank, by)
  return sub(rank, 1, 2) .. sorted(priority_in(sub(rank, 3, 10)) + by)
end

-- C9: whether the first of a lane is sooner than a priority, as bytes.
local function is_below(top, priority)
  if top == '' then
    return false
  end
  local a, b = parts('>I4I4', top, 3)
  local c, d = parts('>I4I4', priority)
  return a < c or (a == c and b < d)
end
