-- include: schedule
-- apply_totals: pause or end a run by what all shards of a crawl count together.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: msgpack of known, leased, open, dones, bytes. ARGV[6]: the revision of this shard when
-- they were counted ("": do not end the run). ARGV[7]: msgpack of what the end of the run reports.
-- Returns the status after this.
if not C then -- I1: it was removed since
  return 'cancelled'
end
check_memory()
local known, leased, pending, dones, size = unpack(decode(ARGV[5]))
check_limits(known, dones, size)
local may_end = tonumber(ARGV[6]) == revision() and not C[C_STAY_OPEN]
if C[C_STATUS] == 'running' and C[C_STARTED] >= 0 and leased + pending == 0 and may_end then
  end_run(decode(ARGV[7]))
end
commit()
return C[C_STATUS]
