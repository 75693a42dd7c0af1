-- include: schedule
-- heartbeat: store a worker's status.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: the worker. ARGV[6]: its heartbeat as JSON. ARGV[7]: milliseconds after which a silent
-- worker is removed. ARGV[8]: how many workers are kept at most.
-- Returns 1.
open_crawl()
local key, worker = prefix .. K_WORKERS, ARGV[5]
local kept_for, max_workers = tonumber(ARGV[7]), tonumber(ARGV[8])
local stored, first = call('HGET', key, worker), now
if stored then
  local known = decode(stored)
  first = now - known[2] < kept_for and known[1] or now
elseif call('HLEN', key) >= max_workers then
  local all, oldest, oldest_at = call('HGETALL', key), nil, nil
  for position = 1, #all, 2 do
    local last = decode(all[position + 1])[2]
    if now - last >= kept_for then
      call('HDEL', key, all[position])
    elseif not oldest_at or last < oldest_at then
      oldest, oldest_at = all[position], last
    end
  end
  if call('HLEN', key) >= max_workers then
    call('HDEL', key, oldest)
  end
end
call('HSET', key, worker, encode({ first, now, ARGV[6] }))
commit()
return 1
