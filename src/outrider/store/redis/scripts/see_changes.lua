-- changes: 5 the last one the caller knows, 6 how many.
if not C then
  return {}
end
local kept = call('LLEN', at .. K_LOG)
local from = max(0, ARGV[5] - (C[C_LOGGED] - kept))
return call('LRANGE', at .. K_LOG, from, from + ARGV[6] - 1)
