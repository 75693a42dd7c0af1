-- include: lease_tasks
-- claim: lease tasks to a worker. Expires leases and wakes queues in bounded numbers; if there may
-- be more of them, the header says so, and the caller runs the script again.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: msgpack of a map: worker, limit, lease_for (milliseconds), cap (per queue), lane and
-- streak, loans (lend whole queues), ends_run (end a run that is over), fingerprints, taken (pairs
-- of a queue's number and the leases this claim took of it), may_expire (leases) and may_wake
-- (queues): how many it still may, room: bytes that the texts of its tasks still may have. If the
-- claim is limited to some queues (C5) also keys (pairs of digests: of a key, and of the same in lower
-- case) or max_queues; rolls (random numbers, one per
-- lease in order) if there are any.
-- Returns a header (msgpack of status, milliseconds to wait or -1, lane, streak, whether to run the
-- script again, may_expire, may_wake and taken as they are now, the time, the crawl's number, the room
-- that is left, when the crawl was created, and when visits of each lease's queue last ended), then three values per lease: the task's number, its row, and its queue's row.
local request = decode(ARGV[5])
local taken, may_expire, may_wake = {}, request.may_expire, request.may_wake
for _, pair in ipairs(request.taken) do
  taken[pair[1]] = pair[2]
end
request.max_queues = request.max_queues or 0
request.queues_taken = #request.taken
request.last_ends = {}

if not C then -- I1: a claim creates no crawl, so one that was removed stays so
  return false
end
check_memory()
local named = request.keys and queues_of_keys(request.keys)
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
      leases = lease_tasks(request, taken, named)
      if request.ends_run then
        end_run_if_over()
      end
    end
  end
end
local is_full = #leases >= request.limit * 3 or request.room <= 0
local wait = C[C_STATUS] == 'running' and is_full and 0 or wake_in(named)
if has_new_status then -- what a claim does with queues, other claims expect
  notify_waiters()
  has_new_status = false
end
has_new_work = false
local is_awaited = C[C_IS_AWAITED] or not is_full
C[C_IS_AWAITED] = false
local taken_pairs = {}
for number, times in pairs(taken) do
  taken_pairs[#taken_pairs + 1] = { number, times }
end
commit(is_awaited)
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
  C[C_ID],
  request.room,
  C[C_CREATED],
  request.last_ends,
}
table.insert(leases, 1, encode(header))
return leases
