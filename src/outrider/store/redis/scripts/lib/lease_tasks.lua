-- include: index, leases
-- Leasing tasks: the claim algorithm of ARCHITECTURE.md (C3 to C7, E2, H1), and by fingerprint
-- (D5).
local function charge(q, cost)
  q[Q_SPENT] = q[Q_SPENT] + cost
  if q[Q_SESSION] >= 0 then
    q[Q_SESSION] = q[Q_SESSION] + cost
  end
  q[Q_LAST_COST] = cost
  q[Q_COST_SUM], q[Q_COST_COUNT] = q[Q_COST_SUM] + cost, q[Q_COST_COUNT] + 1
end

-- E1: refresh queues whose wake time has come, in (wake time, queue number) order.
local function wake_queues(limit)
  flush(wake_times)
  local woken = call('ZRANGEBYSCORE', wake_times, '-inf', now, 'LIMIT', 0, limit)
  if #woken > 0 then
    call('ZREMRANGEBYRANK', wake_times, 0, #woken - 1)
  end
  for _, member in ipairs(woken) do
    queue_by_number(unpack_bytes('>I5', member))[Q_WAKE_AT] = 0
  end
  for _, member in ipairs(woken) do
    refresh(queue_by_number(unpack_bytes('>I5', member)), true)
  end
  return #woken
end

-- The first member of a ready list. While none is added to it, more and more are read at once.
local function first_ready(lane)
  local list, found = lane == 1 and ready1 or ready0, prefetched[lane]
  if found then
    local changed, position = changes[list], found.position
    local member = found[position]
    while changed and member and changed[member] == false do
      position = position + 1
      member = found[position]
    end
    found.position = position
    if member or #found == 0 then
      return member
    end
  end
  flush(list)
  local most = found and min(#found * 4, MAX_PREFETCHED) or 1
  found = call('ZRANGE', list, 0, most - 1)
  found.position, prefetched[lane] = 1, found
  return found[1]
end

local has_inactive -- nil: not read yet

-- E2: the first inactive queue, its precedence and inactive key; one at its cap is skipped (C5).
local function first_inactive(taken, cap)
  local position = 0
  if changes[inactive] then
    flush(inactive)
    has_inactive = nil
  end
  if has_inactive == nil then
    has_inactive = call('ZCARD', inactive) > 0
  end
  if not has_inactive then
    return nil
  end
  while true do
    local inactive_key = call('ZRANGE', inactive, position, position)[1]
    if not inactive_key then
      return nil
    end
    local precedence, _, number = unpack_bytes('>I4I7I5', inactive_key)
    if cap == 0 or (taken[number] or 0) < cap then
      return number, precedence, inactive_key
    end
    position = position + 1
  end
end

-- Tell whether a ready list has a queue of that precedence or a better one.
local function is_ahead(first, precedence)
  return first and unpack_bytes('>I4', first) <= precedence
end

-- E2: open a session of an inactive queue; retire it if it is over its budget.
local function activate(number, inactive_key, times)
  local q = queue_by_number(number)
  set_member(inactive, inactive_key, false)
  if q[Q_INACTIVE_KEY] ~= inactive_key then -- a member is valid only while its queue has it
    return
  elseif is_over_budget(q, rules_of(q)) then
    retire(q, 'budget')
  else
    unlist(q)
    q[Q_SESSION], q[Q_LIST_STATE] = 0, READY
    update_ready_keys(q, C[C_DISCOUNT] * times)
  end
end

-- Append what the worker needs: the task's row, and its queue's row as it was read, since a claim
-- does not change politeness state. The claim ends when its tasks' texts have `request.room` bytes.
local function append_lease(leases, number, t, q, request)
  local row = encode(t)
  request.room = request.room - long_bytes(row)
  dirty_tasks[number] = row
  leases[#leases + 1] = number
  leases[#leases + 1] = row
  leases[#leases + 1] = as_read[q[Q_NUMBER]]
  request.last_ends[#request.last_ends + 1] = q[Q_LAST_END] -- this claim may have expired a lease
end

-- D1: draw the delay that counts from the start of a visit; it is the last delay now. The next lease
-- of the queue in this claim gets the queue with it.
local function draw_delay(q, r, roll)
  local drawn = r[R_MIN_DELAY] + r[R_SPREAD] * roll
  local delay = max(drawn, min(q[Q_CRAWL_DELAY], r[R_RESPECT_CRAWL_DELAY]))
  delay = min(delay * 2 ^ min(q[Q_LEVEL], 64), max(delay, MAX_DELAY))
  q[Q_LAST_DELAY] = delay
  postpone(q, now + to_ms(delay), 'delay')
  return drawn
end

-- H1: a lease ends at its deadline, and is listed by the turn it took.
local function add_lease(number, t, deadline)
  local member = pack('>I5', number)
  t[T_LEASE_TURN] = C[C_LAST_TURN]
  add_member(deadlines, member, deadline)
  if C[C_LISTS_LEASES] then
    add_member(lease_order, member, C[C_LAST_TURN])
  end
end

-- H1, E3, C3, D1: lease the first task of a lane: token, deadline, charge, turn, next-ready; then
-- the queue is refreshed. Every visit begins here, so set_state is written out.
local function lease_top(leases, q, lane, request)
  local r, number = rules_of(q), unpack_bytes('>I5', q[Q_TOP0 + lane], 17)
  local t = task_by_number(number)
  local field = t[T_KIND] * 8
  remove_top(q, lane)
  C[C_LAST_TURN], C[C_PENDING], C[C_LEASED] = C[C_LAST_TURN] + 1, C[C_PENDING] - 1, C[C_LEASED] + 1
  count_changes[field] = (count_changes[field] or 0) - 1
  count_changes[field + LEASED] = (count_changes[field + LEASED] or 0) + 1
  t[T_STATE], t[T_TOKEN], t[T_WORKER], t[T_CLAIMED] = LEASED, next_token(), request.worker, now
  t[T_LASTS] = request.lease_for
  q[Q_TURN], q[Q_LAST_START], q[Q_IN_FLIGHT] = C[C_LAST_TURN], now, q[Q_IN_FLIGHT] + 1
  count_priority(t[T_ORDER], -1)
  charge(q, t[T_COST])
  if request.loans then
    t[T_LOANED], q[Q_LOANED] = true, q[Q_LOANED] + 1
  end
  add_lease(number, t, now + request.lease_for)
  local draws = r[R_SPREAD] > 0 and not request.loans -- C7: the borrower of a loan draws
  if draws then
    t[T_DRAWN] = draw_delay(q, r, request.rolls and request.rolls[#leases / 3 + 1] or 0)
  end
  append_lease(leases, number, t, q, request)
  if draws then
    as_read[q[Q_NUMBER]] = encode(q)
  end
  unlist(q)
  if q[Q_WAKE_AT] ~= 0 then
    set_wake_at(q, 0)
  end
  local gap = gap_of(q, r)
  if gap then
    postpone(q, now + gap, 'delay')
    if has_slot(q, r) then
      refresh(q, true)
    end
  end
end

-- C7: a queue on loan stays ready within its claim while it has due tasks and budget.
local function continue_loan(q)
  local r = rules_of(q)
  local has_due = q[Q_TOP0] ~= '' or q[Q_TOP1] ~= ''
  if has_due and q[Q_SESSION] < r[R_BALANCE] and not is_over_budget(q, r) then
    q[Q_LIST_STATE] = READY
  end
end

-- C5: change the ready keys of a queue by how many leases this claim took of it; none at its cap.
local function reinsert(q, times, request)
  if request.loans then
    continue_loan(q)
  end
  if q[Q_LIST_STATE] == READY then
    if times == request.cap then
      clear_ready_keys(q)
    else
      update_ready_keys(q, C[C_DISCOUNT] * times)
    end
  end
end

-- C5: the numbers of the queues of some keys, each once; a key without a queue has that in lower
-- case.
local function queues_of_keys(pairs_of_digests)
  local found, is_found = {}, {}
  for _, digests in ipairs(pairs_of_digests) do
    local number = index_find(K_KEYS, C_KEY_BUCKETS, digests[1])
      or index_find(K_KEYS, C_KEY_BUCKETS, digests[2])
    if number and not is_found[number] then
      is_found[number] = true
      found[#found + 1] = number
    end
  end
  return found
end

-- C5: whether a claim may lease another task of a queue; if not now, then never.
local function may_take(request, taken, number)
  local times = taken[number]
  if not times then
    return request.max_queues == 0 or request.queues_taken < request.max_queues
  end
  return request.cap == 0 or times < request.cap
end

-- Insert a key into a heap, whose first key is at 1.
local function push_key(heap, key)
  local place = #heap + 1
  while place > 1 and is_key_before(key, heap[floor(place / 2)]) do
    heap[place] = heap[floor(place / 2)]
    place = floor(place / 2)
  end
  heap[place] = key
end

-- Remove the first key of a heap.
local function pop_key(heap)
  local last, length, place = heap[#heap], #heap - 1, 1
  while 2 * place <= length do
    local below = 2 * place
    if below < length and is_key_before(heap[below + 1], heap[below]) then
      below = below + 1
    end
    if not is_key_before(heap[below], last) then
      break
    end
    heap[place] = heap[below]
    place = below
  end
  heap[place] = last
  heap[length + 1] = nil
end

-- C5: the keys of the queues that a claim is limited to, as heaps by field. A key is valid only
-- while its queue has it, so a queue is pushed again whenever its keys may have changed.
local candidates

local function push_candidate(q)
  for field, heap in pairs(candidates) do
    if q[field] ~= '' then
      push_key(heap, q[field])
    end
  end
end

local function limit_to(numbers)
  candidates = { [Q_READY_KEY0] = {}, [Q_READY_KEY0 + 1] = {}, [Q_INACTIVE_KEY] = {} }
  for _, number in ipairs(numbers) do
    push_candidate(peek_queue(number))
  end
end

local function limit_to_taken(taken)
  local numbers = {}
  for number in pairs(taken) do
    numbers[#numbers + 1] = number
  end
  limit_to(numbers)
end

-- C5: the first key of the candidates in a field, and its queue's number.
local function first_candidate(field, request, taken)
  local heap, at = candidates[field], field == Q_INACTIVE_KEY and 12 or 22
  while heap[1] do
    local number = unpack_bytes('>I5', heap[1], at)
    if peek_queue(number)[field] == heap[1] and may_take(request, taken, number) then
      return heap[1], number
    end
    pop_key(heap)
  end
end

-- C4, E2: activate a queue, or choose the queue to lease from: of the candidates, if there are any.
-- Return false to end the claim, or true and the queue, if there is one.
local function pick(request, taken)
  local first, second, head, precedence, inactive_key
  if candidates then
    first = first_candidate(Q_READY_KEY0, request, taken)
    second = first_candidate(Q_READY_KEY0 + 1, request, taken)
    inactive_key, head = first_candidate(Q_INACTIVE_KEY, request, taken)
    precedence = inactive_key and unpack_bytes('>I4', inactive_key)
  else
    first, second = first_ready(0), first_ready(1)
    if has_inactive ~= false or changes[inactive] then
      head, precedence, inactive_key = first_inactive(taken, request.cap)
    end
  end
  if head and not is_ahead(first, precedence) and not is_ahead(second, precedence) then
    activate(head, inactive_key, taken[head] or 0)
    if candidates then
      push_candidate(peek_queue(head))
    end
    return true
  end
  local lane, streak = request.lane, request.streak
  if streak >= C[C_BURST] then
    lane, streak = 1 - lane, 0
  end
  local member = lane == 1 and second or lane == 0 and first
  if not member then
    lane, streak, member = 1 - lane, 0, first or second
  end
  if not member then
    return false
  end
  local q = queue_by_number(unpack_bytes('>I5', member, 22))
  if q[Q_READY_KEY0 + lane] ~= member then -- a member is valid only while its queue has it
    set_member(ready_list(lane), member, false)
    return true
  end
  request.lane, request.streak = lane, streak + 1
  return true, q
end

local function lease_tasks(request, taken, named)
  local leases, count, max_queues = {}, 0, request.max_queues
  local changes_keys = request.cap > 0 or C[C_DISCOUNT] ~= 0 or request.loans
  for number, times in pairs(changes_keys and taken or {}) do
    reinsert(queue_by_number(number), times, request)
  end
  if named then
    limit_to(named)
  end
  while count < request.limit and request.room > 0 do
    if not candidates and max_queues > 0 and request.queues_taken >= max_queues then
      limit_to_taken(taken)
    end
    local continues, q = pick(request, taken)
    if not continues then
      break
    end
    if q then
      lease_top(leases, q, request.lane, request)
      count = count + 1
      if changes_keys or max_queues > 0 then
        local times = (taken[q[Q_NUMBER]] or 0) + 1
        if times == 1 then
          request.queues_taken = request.queues_taken + 1
        end
        taken[q[Q_NUMBER]] = times
        if changes_keys then
          reinsert(q, times, request)
        end
      end
      if candidates then
        push_candidate(q)
      end
    end
  end
  for number in pairs(changes_keys and taken or {}) do
    local q = queue_by_number(number)
    if q[Q_LIST_STATE] == READY then
      if request.loans then
        unlist(q)
      else
        update_ready_keys(q, 0)
      end
    end
  end
  return leases
end

-- D5: lease a task by fingerprint: token, deadline and charge; its queue keeps turn and next-ready.
local function lease_named(leases, number, t, q, request)
  if q[Q_LIST_STATE] == READY then -- its budget changes, so its list is chosen again
    unlist(q)
  end
  remove_entry(q, t[T_LANE], entry_of(number, t))
  set_state(number, t, q, LEASED)
  t[T_NAMED] = true
  q[Q_IN_FLIGHT], q[Q_NAMED] = q[Q_IN_FLIGHT] - 1, q[Q_NAMED] + 1
  charge(q, t[T_COST])
  t[T_TOKEN], t[T_WORKER] = next_token(), request.worker
  t[T_LEASED], t[T_LASTS] = now, request.lease_for
  C[C_LAST_TURN] = C[C_LAST_TURN] + 1
  add_lease(number, t, now + request.lease_for)
  append_lease(leases, number, t, q, request)
  reschedule(q)
end

local function lease_named_tasks(request)
  local leases = {}
  for _, id in ipairs(request.fingerprints) do
    local number = index_find(K_KNOWN, C_KNOWN_BUCKETS, id)
    local has_room = #leases < request.limit * 3 and request.room > 0
    local t = number and has_room and task_by_number(number)
    if t and t[T_STATE] == PENDING and due_of(t) <= now then
      local q = queue_by_number(t[T_QUEUE])
      local is_open = q[Q_RETIRED] == '' and not q[Q_PAUSED]
      if is_open and not is_over_budget(q, rules_of(q)) then
        lease_named(leases, number, t, q, request)
      end
    end
  end
  return leases
end

-- I2: end the run if it is over. The crawl runs.
local function end_run_if_over()
  if is_run_over() then
    end_run(counts_at_end())
  end
end

local function first_deadline()
  return tonumber(call('ZRANGE', deadlines, 0, 0, 'WITHSCORES')[2])
end

-- C6: the same for a claim by keys: the wake times of their queues, and all deadlines.
local function wake_in_of(numbers)
  local first = first_deadline()
  for _, number in ipairs(numbers) do
    local q = peek_queue(number)
    if q[Q_LIST_STATE] ~= UNLISTED then
      return 0
    elseif q[Q_WAKE_AT] > 0 then
      first = min(first or q[Q_WAKE_AT], q[Q_WAKE_AT])
    end
  end
  return first and max(0, first - now) or -1
end

-- C6: milliseconds to the earliest deadline or wake time; -1 if time alone makes nothing due.
-- `named`: the queues of a claim by keys.
local function wake_in(named)
  if C[C_STATUS] ~= 'running' then
    return -1
  end
  flush_all()
  if named then
    return wake_in_of(named)
  end
  for _, list in ipairs({ ready0, ready1, inactive }) do
    if call('ZCARD', list) > 0 then
      return 0
    end
  end
  local first, wake = first_deadline(), tonumber(call('ZRANGE', wake_times, 0, 0, 'WITHSCORES')[2])
  first = wake and min(first or wake, wake) or first
  return first and max(0, first - now) or -1
end
