-- The crawl a call is about: its row, its clock, its books. Every script begins with this piece.
-- KEYS[1] is the prefix of all keys. ARGV: 1 the crawl's name, 2 the moment ("": the server's),
-- 3 the row of a new crawl, 4 the epoch of the rules the caller knows ("": whatever holds).
local call, encode, decode = redis.call, cmsgpack.pack, cmsgpack.unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local pack, parts, sub, byte = struct.pack, struct.unpack, string.sub, string.byte
local values_of = cmsgpack.unpack_limit

local base, name, now = KEYS[1], ARGV[1], tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end

-- A row is an array. Its values are read past its head and its version, all at once: that is twice
-- as fast as an array, and the place that is left for where they end takes the version.
local function read(row)
  local values = { values_of(row, 64, byte(row) == 220 and 4 or 2) }
  values[1] = ROW
  return values
end

-- Keys that are asked for again and again are put together once.
local at, C, alarms, deadlines, parked, ready0, ready1

local function name_keys(number)
  at = base .. number .. ':'
  alarms, deadlines, parked = at .. K_ALARMS, at .. K_DEADLINES, at .. K_PARKED
  ready0, ready1 = at .. K_READY0, at .. K_READY1
end

local known_number = call('HGET', base .. K_CRAWLS, name)
if known_number then
  name_keys(known_number)
  local row = call('GET', at .. K_CRAWL)
  if byte(row, 4) ~= ROW then
    return redis.error_reply('OUTRIDER format ' .. byte(row, 4))
  end
  C = read(row)
  if not C[C_NOTED] then -- written before there was either
    C[C_OPENS_BELOW], C[C_NOTED] = '', 0
  end
  now = max(now, C[C_CLOCK])
end

-- A full server refuses this, which changes nothing, and so the whole call before its first write:
-- once a script has written, it is let go on.
local function ask_for_room()
  call('HSETNX', base .. META, 'format', FORMAT)
end

-- I1: created by the first add, or by name.
local function open()
  ask_for_room()
  if C then
    return
  end
  local number = call('HLEN', base .. K_CRAWLS) + 1
  call('HSET', base .. K_CRAWLS, name, number)
  name_keys(number)
  C = read(ARGV[3])
  C[C_NAME], C[C_CREATED] = name, now
end

-- Whether the caller goes by other rules than those that hold.
local function is_stale()
  return ARGV[4] ~= '' and tonumber(ARGV[4]) ~= (C and C[C_EPOCH] or 0)
end

local function to_ms(seconds)
  return ceil(seconds * 1000 - 1e-6)
end

-- O3: what the crawl did of itself, for those who follow it.
local function note(what, subject, detail)
  C[C_LOGGED] = C[C_LOGGED] + 1
  call('RPUSH', at .. K_LOG, encode({ C[C_LOGGED], now, what, subject, detail }))
  call('LTRIM', at .. K_LOG, -LOG_KEPT, -1)
end

local function move_to(status, reason)
  C[C_STATUS], C[C_REASON] = status, reason
  call('RPUSH', at .. K_TIMELINE, encode({ now / 1000, status, reason }))
  call('LTRIM', at .. K_TIMELINE, -TIMELINE_KEPT, -1)
  note('crawl-' .. status, name, reason)
end

-- I2: a task came, so a finished crawl runs again; and whoever waits for work is rung.
local function worked()
  C[C_AT_FINISH] = false
  if C[C_STATUS] == 'finished' then
    move_to('running', 'work')
  end
  if C[C_WAITED_FOR] then
    C[C_WAITED_FOR] = false
    redis.pcall('PUBLISH', base .. 'work:' .. name, '')
  end
end

-- I4: reached → paused with the reason.
local function check_limits(count, dones, size)
  if C[C_STATUS] ~= 'running' then
    return
  end
  count, dones, size = count or C[C_COUNT], dones or C[C_DONES], size or C[C_BYTES]
  local age = C[C_FIRST] < 0 and 0 or (now - C[C_FIRST]) / 1000
  local reached
  if C[C_LIMIT_TASKS] > 0 and count >= C[C_LIMIT_TASKS] then
    reached = 'limit-tasks'
  elseif C[C_LIMIT_DONE] > 0 and dones >= C[C_LIMIT_DONE] then
    reached = 'limit-done'
  elseif C[C_LIMIT_BYTES] > 0 and size >= C[C_LIMIT_BYTES] then
    reached = 'limit-bytes'
  elseif C[C_LIMIT_SECONDS] > 0 and age >= C[C_LIMIT_SECONDS] then
    reached = 'limit-seconds'
  end
  if reached then
    move_to('paused', reached)
  end
end

-- I2: a run ends, or the crawl pauses where it would.
local function close()
  if C[C_PAUSE_AT_FINISH] and not C[C_AT_FINISH] then
    C[C_AT_FINISH] = true
    move_to('paused', 'finish')
  else
    C[C_RUNS], C[C_FINISHED] = C[C_RUNS] + 1, now
    move_to('finished', 'run ' .. C[C_RUNS])
  end
end

-- Grows with every add, lease, return and change of status.
local function moves()
  return C[C_TOKENS] + C[C_ARRIVALS] + C[C_VISITS] + C[C_LOGGED]
end
