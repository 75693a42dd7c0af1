-- claim: lease tasks to a worker. Expires leases and wakes queues in bounded numbers; if there may
-- be more of them, the header says so, and the caller runs the script again.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: msgpack of worker, limit, lease time in milliseconds, cap per queue, lane, streak,
-- whether to loan whole queues, whether to end a run that is over, fingerprints, pairs of queue
-- number and leases that this claim took of it, how many leases it may still expire, how many
-- queues wake.
-- Returns a header (msgpack of status, milliseconds to wait or -1, lane, streak, whether to run the
-- script again, the last three arguments as they are now, the time), then three values per lease:
-- the task's number, its row, and its queue's row.
local sent = decode(ARGV[5])
local request = {
  worker = sent[1],
  limit = sent[2],
  lease_for = sent[3],
  cap = sent[4],
  lane = sent[5],
  streak = sent[6],
  loans = sent[7],
  ends_run = sent[8],
  fingerprints = sent[9],
}
local taken, may_expire, may_wake = {}, sent[11], sent[12]
for _, pair in ipairs(sent[10]) do
  taken[pair[1]] = pair[2]
end

open_crawl()
local expired = expire_overdue(min(EXPIRE_STEP, may_expire))
local has_more = expired == EXPIRE_STEP and may_expire > expired
may_expire = may_expire - expired
check_limits()
local leases, is_running = {}, C[C_STATUS] == 'running'
if is_running and not has_more then
  if #request.fingerprints > 0 then
    leases = lease_named_tasks(request)
  else
    local woken = wake_queues(min(WAKE_STEP, may_wake))
    has_more = woken == WAKE_STEP and may_wake > woken
    may_wake = may_wake - woken
    if not has_more then
      leases = lease_tasks(request, taken)
      if request.ends_run then
        end_run_if_over()
      end
    end
  end
end
local is_full = #leases >= request.limit * 3
local wait = C[C_STATUS] == 'running' and is_full and 0 or wake_in()
C[C_IS_AWAITED] = C[C_IS_AWAITED] or not is_full
local taken_pairs = {}
for number, times in pairs(taken) do
  taken_pairs[#taken_pairs + 1] = { number, times }
end
commit()
local lane, streak = request.lane, request.streak
local header = {
  C[C_STATUS],
  wait,
  lane,
  streak,
  has_more,
  may_expire,
  may_wake,
  taken_pairs,
  now,
}
table.insert(leases, 1, encode(header))
return leases
