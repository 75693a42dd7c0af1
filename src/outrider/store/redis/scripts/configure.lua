-- configure: 5 the numbers of the rules, 6 the rules as JSON, 7 settings ("": as they are),
-- 8 "1" if these rules are other than those that hold. Answers with whether queues are still to be
-- told, and whether another order among queues holds; nil: other rules hold.
if is_stale() then
  return false
end
open()
local was_by_turn = C[C_BY_TURN]
if ARGV[8] == '1' then
  obey(decode(ARGV[5]), ARGV[6])
  C[C_TOLD] = C[C_TOLD] and C[C_QUEUES] == 0
end
if ARGV[7] ~= '' then
  call('SET', at .. K_SETTINGS, ARGV[7])
end
commit()
return { C[C_TOLD] and 0 or 1, was_by_turn ~= C[C_BY_TURN] and 1 or 0 }
