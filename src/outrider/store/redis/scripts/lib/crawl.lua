-- The crawl of a call: its row, its time, its events and its status. Every script but init_store
-- begins with this piece.
-- KEYS[1]: the prefix of all keys. ARGV[1]: the crawl's name. ARGV[2]: the time ("": the server's).
-- ARGV[3]: the row of a new crawl. ARGV[4]: the epoch of the rules the caller has ("": any).
local call, encode, decode = redis.call, cmsgpack.pack, cmsgpack.unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min
local pack, unpack_bytes, sub, byte = struct.pack, struct.unpack, string.sub, string.byte
local unpack_values = cmsgpack.unpack_limit

local base, name, now = KEYS[1], ARGV[1], tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end

-- Decode a row, an array. Its values are read past its header and version all at once, which is
-- twice as fast as decoding an array. The first value returned is where they end; the version
-- replaces it.
local function decode_row(row)
  local values = { unpack_values(row, 128, byte(row) == 220 and 4 or 2) }
  values[1] = ROW
  return values
end

-- The bytes of a task's row that count in a result page: most rows are short, and do not.
local function long_bytes(row)
  return row and max(0, #row - SHORT_ROW) or 0
end

-- Keys that are used often are built once per call.
local prefix, C, wake_times, deadlines, lease_order, inactive, ready0, ready1

local function name_keys(number)
  prefix = base .. number .. ':'
  wake_times, deadlines = prefix .. K_WAKE_TIMES, prefix .. K_DEADLINES
  lease_order, inactive = prefix .. K_LEASES, prefix .. K_INACTIVE
  ready0, ready1 = prefix .. K_READY0, prefix .. K_READY1
end

local crawl_number = call('HGET', base .. K_CRAWLS, name)
if crawl_number then
  name_keys(crawl_number)
  local row = call('GET', prefix .. K_CRAWL)
  if byte(row, 4) ~= ROW then
    return redis.error_reply('OUTRIDER format ' .. byte(row, 4))
  end
  C = decode_row(row)
  if not C[C_LAST_VALUE] then -- written before these fields existed
    C[C_OPENS_BELOW], C[C_LAST_VALUE] = '', 0
  end
  if C[C_STAY_OPEN] == nil then -- likewise
    C[C_STAY_OPEN] = false
  end
  if not C[C_RECOVERED] then -- likewise: `upgrade` counts
    for field = C_CRITICAL, C_RECOVERED do
      C[field] = 0
    end
  end
  if C[C_LISTS_LEASES] == nil then -- likewise
    C[C_LISTS_LEASES] = false
  end
  C[C_FORGOTTEN], C[C_ID] = C[C_FORGOTTEN] or 0, tonumber(crawl_number)
  now = max(now, C[C_CLOCK])
end

-- Fail if the server's memory is full, before the first write: this command changes nothing, but a
-- full server refuses it. Once a script has written, the server lets it continue.
local function check_memory()
  call('HSETNX', base .. META, 'format', FORMAT)
end

-- I1: create the crawl unless it exists. No number, token or epoch of a crawl that was removed is
-- given again: callers may still have its leases, and its rules in their caches.
local function open_crawl()
  check_memory()
  if C then
    return
  end
  local last, token, epoch = unpack(call('HMGET', base .. META, 'crawls', 'token', 'epoch'))
  local number = tonumber(last or call('HLEN', base .. K_CRAWLS)) + 1
  call('HSET', base .. META, 'crawls', number)
  call('HSET', base .. K_CRAWLS, name, number)
  name_keys(number)
  C = decode_row(ARGV[3])
  C[C_NAME], C[C_CREATED], C[C_ID] = name, now, number
  C[C_LAST_TOKEN], C[C_EPOCH] = tonumber(token or 0), tonumber(epoch or 0)
end

-- Tell whether the caller's rules are of another epoch than the crawl's.
local function is_stale()
  return ARGV[4] ~= '' and tonumber(ARGV[4]) ~= (C and C[C_EPOCH] or 0)
end

local function to_ms(seconds)
  return ceil(seconds * 1000 - 1e-6)
end

local by = '' -- the operator whose act is being applied

-- O3: append an event to the log; the end of a run has counts.
local function log_event(what, subject, detail, counts)
  C[C_LAST_EVENT] = C[C_LAST_EVENT] + 1
  local event = { C[C_LAST_EVENT], now, what, subject, detail, by, counts }
  call('RPUSH', prefix .. K_EVENTS, encode(event))
  call('LTRIM', prefix .. K_EVENTS, -MAX_EVENTS, -1)
end

-- O3: let the events of this call carry who acts, and log the act they follow from. `signature` is
-- msgpack of the operator, and of the act's name, subject and detail unless it is logged already.
local function sign(signature)
  local words = decode(signature)
  by = words[1]
  if words[2] and by ~= '' then
    log_event(words[2], words[3], words[4])
  end
end

-- C6: what waiting claims do not expect: a queue was listed or got an earlier wake time (any verb
-- but a claim); another status.
local has_new_work, has_new_status = false, false

-- I2: tell whether the next claim ends the run: the crawl runs and does not stay open, nothing is
-- leased, and no queue that is not retired has a pending task.
local function is_run_over()
  local has_open = C[C_LEASED] > 0 or C[C_PENDING] > C[C_RETIRED_PENDING]
  local is_running = C[C_STATUS] == 'running' and not C[C_STAY_OPEN]
  return is_running and C[C_STARTED] >= 0 and not has_open
end

-- C6: notify waiting claims, once after each that found too little.
local function notify_waiters()
  if C[C_IS_AWAITED] and (has_new_work or has_new_status or is_run_over()) then
    C[C_IS_AWAITED] = false
    redis.pcall('PUBLISH', base .. 'work:' .. name, '')
  end
end

local function change_status(status, reason, counts)
  C[C_STATUS], C[C_REASON], has_new_status = status, reason, true
  call('RPUSH', prefix .. K_TIMELINE, encode({ now / 1000, status, reason }))
  call('LTRIM', prefix .. K_TIMELINE, -MAX_TIMELINE, -1)
  log_event('crawl-' .. status, name, reason, counts)
end

-- I2: a task was added, so a finished crawl runs again.
local function work_added()
  C[C_AT_FINISH] = false
  if C[C_STATUS] == 'finished' then
    change_status('running', 'work')
  end
end

-- I4: pause the crawl if a limit is reached; the counts default to those of this shard.
local function check_limits(known, dones, size)
  if C[C_STATUS] ~= 'running' then
    return
  end
  known, dones, size = known or C[C_LAST_TASK], dones or C[C_VISITS_DONE], size or C[C_BYTES]
  local age = C[C_STARTED] < 0 and 0 or (now - C[C_STARTED]) / 1000
  local reached
  if C[C_LIMIT_TASKS] > 0 and known >= C[C_LIMIT_TASKS] then
    reached = 'limit-tasks'
  elseif C[C_LIMIT_DONE] > 0 and dones >= C[C_LIMIT_DONE] then
    reached = 'limit-done'
  elseif C[C_LIMIT_BYTES] > 0 and size >= C[C_LIMIT_BYTES] then
    reached = 'limit-bytes'
  elseif C[C_LIMIT_SECONDS] > 0 and age >= C[C_LIMIT_SECONDS] then
    reached = 'limit-seconds'
  end
  if reached then
    change_status('paused', reached)
  end
end

-- I2: end the run, or pause the crawl if it is to be paused at its end. `counts`: what it reports.
local function end_run(counts)
  if C[C_PAUSE_AT_FINISH] and not C[C_AT_FINISH] then
    C[C_AT_FINISH] = true
    change_status('paused', 'finish')
  else
    C[C_RUNS], C[C_FINISHED] = C[C_RUNS] + 1, now
    change_status('finished', 'run ' .. C[C_RUNS], counts)
  end
end

-- A number that grows with every add, lease, end of a lease and change of status.
local function revision()
  return C[C_LAST_TOKEN] + C[C_LAST_ARRIVAL] + C[C_VISITS] + C[C_LAST_EVENT]
end
