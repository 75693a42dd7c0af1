-- beat: 5 the worker, 6 its beat, 7 milliseconds until the silent are forgotten, 8 workers at most.
open()
local line, worker, kept, most = at .. K_WORKERS, ARGV[5], tonumber(ARGV[7]), tonumber(ARGV[8])
local known = call('HGET', line, worker)
local first = now
if known then
  local heard = decode(known)
  first = now - heard[2] < kept and heard[1] or now
elseif call('HLEN', line) >= most then
  local everyone, quietest, since = call('HGETALL', line), nil, nil
  for place = 1, #everyone, 2 do
    local last = decode(everyone[place + 1])[2]
    if now - last >= kept then
      call('HDEL', line, everyone[place])
    elseif not since or last < since then
      quietest, since = everyone[place], last
    end
  end
  if call('HLEN', line) >= most then
    call('HDEL', line, quietest)
  end
end
call('HSET', line, worker, encode({ first, now, ARGV[6] }))
commit()
return 1
