-- include: schedule
-- heartbeat: store a worker's status.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the worker. ARGV[6]: what was stored of it when it was read ("": nothing). ARGV[7]: its
-- heartbeat as JSON, with its totals so far. ARGV[8]: the same with those of this heartbeat alone, if
-- what was stored is of another process ("": of this one); it is used if that was silent too long.
-- ARGV[9]: milliseconds of silence after which a worker is listed as a new one. ARGV[10]: how many
-- workers are kept at most.
-- Returns how many removed workers are kept for their totals; nil: the worker changed since.
if not C then -- I1: workers outlive a crawl that was removed
  return 0
end
check_memory()
local key, gone, worker = prefix .. K_WORKERS, prefix .. K_GONE_WORKERS, ARGV[5]
local kept_for, max_workers = tonumber(ARGV[9]), tonumber(ARGV[10])
local stored, first, heartbeat = call('HGET', key, worker), now, ARGV[7]
if (stored or '') ~= ARGV[6] then
  return false
end

local function remove(name, value)
  call('RPUSH', gone, decode(value)[3])
  call('HDEL', key, name)
end

if stored then
  local known = decode(stored)
  if now - known[2] < kept_for then
    first = known[1]
  elseif ARGV[8] ~= '' then
    remove(worker, stored)
    heartbeat = ARGV[8]
  end
elseif call('HLEN', key) >= max_workers then
  local all, oldest, oldest_at = call('HGETALL', key), nil, nil
  for position = 1, #all, 2 do
    local last = decode(all[position + 1])[2]
    if now - last >= kept_for then
      remove(all[position], all[position + 1])
    elseif not oldest_at or last < oldest_at then
      oldest, oldest_at = position, last
    end
  end
  if call('HLEN', key) >= max_workers then
    remove(all[oldest], all[oldest + 1])
  end
end
call('HSET', key, worker, encode({ first, now, heartbeat }))
commit()
return call('LLEN', gone)
