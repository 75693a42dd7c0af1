-- reckon: 5 what all shards count together: known, leased, open, dones, bytes; 6 how often this one
-- had moved when that was counted ("": close nothing). Answers with the status.
open()
local whole = decode(ARGV[5])
local known, leased, waiting, dones, size = unpack(whole)
check_limits(known, dones, size)
local is_still = tonumber(ARGV[6]) == moves()
if C[C_STATUS] == 'running' and known > 0 and leased + waiting == 0 and is_still then
  close()
end
commit()
return C[C_STATUS]
