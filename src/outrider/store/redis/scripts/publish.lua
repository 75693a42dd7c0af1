-- include: schedule
-- publish: append a worker's events to the event log (O3).
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the publisher. ARGV[6]: the serial of the batch. ARGV[7]: how many events it has.
-- ARGV[8]: its bytes. ARGV[9]: JSON of the batch, which scripts do not read.
-- Returns 1.
local publisher, serial = ARGV[5], tonumber(ARGV[6])
local is_removed = C and C[C_STATUS] == 'cancelled' and C[C_REASON] == DELETING
if not C or is_removed then
  return 1
end
local ring, publishers = prefix .. K_PUBLISHED, prefix .. K_PUBLISHERS
if tonumber(call('HGET', publishers, publisher) or 0) >= serial then
  return 1
end
check_memory()
C[C_LAST_EVENT] = C[C_LAST_EVENT] + ARGV[7]
local last, size = C[C_LAST_EVENT], call('HINCRBY', publishers, '', ARGV[8])
call('HSET', publishers, publisher, ARGV[6])
call('ZADD', ring, last, encode({ last, publisher, serial, size, tonumber(ARGV[7]), ARGV[9] }))

local function forget_oldest()
  local oldest = decode(call('ZRANGE', ring, 0, 0)[1])
  if oldest[1] > last - RING_EVENTS and size - oldest[4] < RING_BYTES then
    return false
  end
  call('ZREMRANGEBYRANK', ring, 0, 0)
  if tonumber(call('HGET', publishers, oldest[2]) or 0) == oldest[3] then
    call('HDEL', publishers, oldest[2])
  end
  return true
end

while forget_oldest() do
end
-- Memory is given back once no worker publishes; the numbers tell readers that events are missing.
call('EXPIRE', ring, RING_SECONDS)
call('EXPIRE', publishers, RING_SECONDS)
commit()
return 1
