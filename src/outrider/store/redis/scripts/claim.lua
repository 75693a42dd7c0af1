-- claim: 5 the request. It takes back and wakes a bounded number, and says so if there may be more:
-- then the caller asks again. Answers with a header, then three values a lease.
local asked = decode(ARGV[5])
local request = {
  worker = asked[1],
  limit = asked[2],
  lease_for = asked[3],
  cap = asked[4],
  lane = asked[5],
  streak = asked[6],
  lends = asked[7],
  closes = asked[8],
  names = asked[9],
}
local taken, may_expire, may_wake = {}, asked[11], asked[12]
for _, pair in ipairs(asked[10]) do
  taken[pair[1]] = pair[2]
end

open()
local step = min(EXPIRE_STEP, may_expire)
local lost = take_back(step)
local has_more = lost == EXPIRE_STEP and may_expire > lost
may_expire = may_expire - lost
check_limits()
local leases, is_running = {}, C[C_STATUS] == 'running'
if is_running and not has_more then
  if #request.names > 0 then
    leases = lend_named(request)
  else
    local woken = wake(min(WAKE_STEP, may_wake))
    has_more = woken == WAKE_STEP and may_wake > woken
    may_wake = may_wake - woken
    if not has_more then
      leases = lend(request, taken)
      if request.closes then
        close_run()
      end
    end
  end
end
local is_cut = #leases >= request.limit * 3
local wait = C[C_STATUS] == 'running' and is_cut and 0 or wake_in()
C[C_WAITED_FOR] = C[C_WAITED_FOR] or not is_cut
local took = {}
for number, times in pairs(taken) do
  took[#took + 1] = { number, times }
end
commit()
local lane, streak = request.lane, request.streak
local header = { C[C_STATUS], wait, lane, streak, has_more, may_expire, may_wake, took, now }
table.insert(leases, 1, encode(header))
return leases
