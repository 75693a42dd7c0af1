-- include: order
-- The schedule of a crawl: ready lists, inactive list and wake times (E1, E2, E5). A ready queue is
-- in the ready lists of its lanes under its ready keys, an inactive one in the inactive list under
-- its inactive key, an unlisted one in neither. A queue whose list time alone can change has a wake
-- time. The first entry of each lane is in the queue's row.
local lane_keys = { [0] = {}, {} } -- by the queue's number

local function lane_key(q, lane)
  local found, number = lane_keys[lane], q[Q_NUMBER]
  local key = found[number]
  if not key then
    key = prefix .. (lane == 1 and K_LANE1 or K_LANE0) .. number
    found[number] = key
  end
  return key
end

local function entry_of(number, t)
  return t[T_ORDER] .. pack('>I5', number)
end

-- Insert a pending task: into its lane if it is due, else into the delayed tasks.
local function insert_entry(q, lane, entry, due)
  if due > now then
    add_member(prefix .. K_DELAYED .. q[Q_NUMBER], pack('B', lane) .. entry, due)
    if q[Q_NEXT_DUE] < 0 or due < q[Q_NEXT_DUE] then
      q[Q_NEXT_DUE] = due
    end
    return
  end
  add_member(lane_key(q, lane), entry, 0)
  local top = Q_TOP0 + lane
  if q[top] == '' or is_before(entry, q[top]) then
    q[top] = entry
  end
end

-- Insert a pending task with a new due time.
local function enqueue(number, t, q, due)
  t[T_DUE] = due
  insert_entry(q, t[T_LANE], entry_of(number, t), due)
end

local function find_next_due(q)
  local first = call('ZRANGE', prefix .. K_DELAYED .. q[Q_NUMBER], 0, 0, 'WITHSCORES')
  q[Q_NEXT_DUE] = tonumber(first[2]) or -1
end

-- Remove the first entry of a lane.
local function remove_top(q, lane)
  local list = lane_key(q, lane)
  flush_additions(list)
  call('ZREM', list, q[Q_TOP0 + lane])
  q[Q_TOP0 + lane] = call('ZRANGE', list, 0, 0)[1] or ''
end

-- Remove a pending task from its lane or from the delayed tasks.
local function remove_entry(q, lane, entry)
  local list, delayed = lane_key(q, lane), prefix .. K_DELAYED .. q[Q_NUMBER]
  flush_additions(list)
  flush_additions(delayed)
  if q[Q_TOP0 + lane] == entry then
    remove_top(q, lane)
  elseif call('ZREM', list, entry) == 0 then
    call('ZREM', delayed, pack('B', lane) .. entry)
    find_next_due(q)
  end
end

local function is_empty(q)
  return q[Q_TOP0] == '' and q[Q_TOP1] == '' and q[Q_NEXT_DUE] < 0
end

-- The number of pending tasks of a queue.
local function pending_count(q)
  local count = 0
  for _, list in ipairs({ lane_key(q, 0), lane_key(q, 1), prefix .. K_DELAYED .. q[Q_NUMBER] }) do
    flush_additions(list)
    count = count + call('ZCARD', list)
  end
  return count
end

-- C6: move tasks that have become due to their lanes; very many in several refreshes.
local function promote_due(q)
  local delayed = prefix .. K_DELAYED .. q[Q_NUMBER]
  flush_additions(delayed)
  local due_members = call('ZRANGEBYSCORE', delayed, '-inf', now, 'LIMIT', 0, MAX_PROMOTED)
  for _, member in ipairs(due_members) do
    insert_entry(q, byte(member), sub(member, 2), now)
  end
  call('ZREMRANGEBYRANK', delayed, 0, #due_members - 1)
  find_next_due(q)
end

-- C3: the key in a ready list: queue precedence, rank of the top task, turn, queue number.
local function ready_key(q, top, discount)
  local rank = NO_RANK
  if not C[C_BY_TURN] then
    rank = sub(top, 1, 10)
    if discount ~= 0 then
      rank = discounted(rank, discount)
    end
  end
  local precedence = rules_of(q)[R_PRECEDENCE] + 2147483648
  return pack('>I4c10I7I5', precedence, rank, q[Q_TURN], q[Q_NUMBER])
end

local function ready_list(lane)
  return lane == 1 and ready1 or ready0
end

local prefetched = {} -- the first members of each ready list, while none is added to it

local function set_ready_key(q, lane, key)
  local field = Q_READY_KEY0 + lane
  if key == q[field] then
    return
  end
  if q[field] ~= '' then
    set_member(ready_list(lane), q[field], false)
  end
  if key ~= '' then
    set_member(ready_list(lane), key, 0)
    prefetched[lane] = nil
  end
  q[field] = key
end

-- C5: put a queue into the ready lists under its current keys.
local function update_ready_keys(q, discount)
  for lane = 0, 1 do
    local top = q[Q_TOP0 + lane]
    set_ready_key(q, lane, top == '' and '' or ready_key(q, top, discount))
  end
end

local function clear_ready_keys(q)
  if q[Q_READY_KEY0] ~= '' then
    set_ready_key(q, 0, '')
  end
  if q[Q_READY_KEY1] ~= '' then
    set_ready_key(q, 1, '')
  end
end

local function unlist(q)
  clear_ready_keys(q)
  if q[Q_INACTIVE_KEY] ~= '' then
    set_member(inactive, q[Q_INACTIVE_KEY], false)
    q[Q_INACTIVE_KEY] = ''
  end
  q[Q_LIST_STATE] = UNLISTED
end

local function list_ready(q)
  q[Q_LIST_STATE], has_new_work = READY, true
  update_ready_keys(q, 0)
end

local function list_inactive(q)
  local precedence = rules_of(q)[R_PRECEDENCE] + 2147483648
  q[Q_LIST_STATE], has_new_work = INACTIVE, true
  q[Q_INACTIVE_KEY] = pack('>I4I7I5', precedence, q[Q_INACTIVE_TURN], q[Q_NUMBER])
  set_member(inactive, q[Q_INACTIVE_KEY], 0)
end

-- E2: end a session; the queue goes behind the others of its precedence.
local function deactivate(q)
  C[C_LAST_TURN] = C[C_LAST_TURN] + 1
  q[Q_SESSION], q[Q_INACTIVE_TURN] = -1, C[C_LAST_TURN]
  list_inactive(q)
end

local function is_over_budget(q, r)
  return r[R_BALANCE] == 0 or (r[R_TOTAL] >= 0 and r[R_TOTAL] <= q[Q_SPENT])
end

local function has_slot(q, r)
  return q[Q_LOANED] == 0 and q[Q_IN_FLIGHT] < r[R_SLOTS]
end

-- When the earliest pending task is or was due. Scans the lanes: only after actions that choose no
-- list.
local function first_due(q)
  local first = q[Q_NEXT_DUE] >= 0 and q[Q_NEXT_DUE] or nil
  for lane = 0, 1 do
    local list = lane_key(q, lane)
    flush_additions(list)
    if call('ZCARD', list) > MAX_SCANNED then
      return now
    end
    for _, entry in ipairs(call('ZRANGE', list, 0, -1)) do
      local due = due_of(task_by_number(unpack_bytes('>I5', entry, 17)))
      first = first and min(first, due) or due
    end
  end
  return first
end

-- When to look at a queue again; 0 if only an operator, a finish or an add can change its list.
local function wake_time(q, r)
  if q[Q_LIST_STATE] ~= UNLISTED then
    return max(q[Q_NEXT_DUE], 0)
  elseif is_empty(q) or not has_slot(q, r) or q[Q_PAUSED] or q[Q_RETIRED] ~= '' then
    return 0
  elseif q[Q_TOP0] == '' and q[Q_TOP1] == '' then
    return max(q[Q_NEXT_READY], q[Q_NEXT_DUE])
  elseif q[Q_NEXT_READY] > now then
    return q[Q_NEXT_READY]
  end
  return max(q[Q_NEXT_READY], first_due(q))
end

local function set_wake_at(q, instant)
  if instant == q[Q_WAKE_AT] then
    return
  end
  has_new_work = has_new_work or instant > 0
  q[Q_WAKE_AT] = instant
  set_member(wake_times, pack('>I5', q[Q_NUMBER]), instant > 0 and instant)
end

-- E5: exclude a queue with its tasks; the reason "budget" never replaces another.
local function retire(q, reason)
  if q[Q_RETIRED] == '' then
    C[C_RETIRED_PENDING] = C[C_RETIRED_PENDING] + pending_count(q)
  elseif reason == 'budget' or reason == q[Q_RETIRED] then
    return
  end
  q[Q_RETIRED] = reason
  log_event('queue-retired', q[Q_KEY], reason)
  unlist(q)
  set_wake_at(q, 0)
end

-- C9: tell whether the first due task of a lane is good enough to open a session.
local function has_focus_task(q)
  local below = C[C_OPENS_BELOW]
  return below ~= '' and (is_below(q[Q_TOP0], below) or is_below(q[Q_TOP1], below))
end

-- E1: retire a queue that can be served, deactivate it, or make it ready.
local function choose_list(q, r)
  local session, is_over = q[Q_SESSION], r[R_HOLD]
  if session >= 0 then
    is_over = session >= r[R_BALANCE]
  end
  if is_over_budget(q, r) then
    retire(q, 'budget')
  elseif is_over and not has_focus_task(q) then
    deactivate(q)
  else
    q[Q_SESSION] = is_over and 0 or max(session, 0)
    list_ready(q)
  end
end

-- E1: a listed queue keeps its list while it can be served, else it is unlisted; an unlisted one
-- that can be served gets a list if may_choose. E2: an empty queue has no session.
local function refresh(q, may_choose)
  local r = rules_of(q)
  if q[Q_NEXT_DUE] >= 0 and q[Q_NEXT_DUE] <= now then
    promote_due(q)
  end
  local has_due = q[Q_TOP0] ~= '' or q[Q_TOP1] ~= ''
  local is_open = q[Q_RETIRED] == '' and not q[Q_PAUSED] and has_slot(q, r)
  if has_due and is_open and q[Q_NEXT_READY] <= now then
    if q[Q_LIST_STATE] == READY then
      update_ready_keys(q, 0)
    elseif may_choose and q[Q_LIST_STATE] == UNLISTED then
      choose_list(q, r)
    end
  else
    if q[Q_LIST_STATE] ~= UNLISTED then
      unlist(q)
    end
    if is_empty(q) and q[Q_IN_FLIGHT] == 0 and q[Q_NAMED] == 0 then
      q[Q_SESSION] = -1
    end
  end
  set_wake_at(q, wake_time(q, r))
end

-- C9: a focus task does not wait until its inactive queue is activated.
local function activate_for_focus(q)
  if q[Q_LIST_STATE] == INACTIVE and has_focus_task(q) then
    unlist(q)
    choose_list(q, rules_of(q))
  end
end

-- E1: decide at once which list a queue is on.
local function reschedule(q)
  refresh(q, true)
  activate_for_focus(q)
end

-- E5, I2: undo a retirement; pending tasks make a finished crawl run again.
local function revive(q)
  log_event('queue-returned', q[Q_KEY], q[Q_RETIRED])
  q[Q_RETIRED] = ''
  C[C_RETIRED_PENDING] = C[C_RETIRED_PENDING] - pending_count(q)
  if not is_empty(q) then
    work_added()
  end
  reschedule(q)
end

-- D1: next-ready never moves back.
local function postpone(q, instant, why)
  if instant > q[Q_NEXT_READY] then
    q[Q_NEXT_READY], q[Q_WAIT_REASON] = instant, why
  end
end

local function min_delay(q, r)
  return to_ms(max(r[R_MIN_DELAY], min(q[Q_CRAWL_DELAY], r[R_RESPECT_CRAWL_DELAY])))
end

-- D7: the last delay, or the least one if there was none.
local function delay_of(q, r)
  return q[Q_LAST_DELAY] >= 0 and to_ms(q[Q_LAST_DELAY]) or min_delay(q, r)
end

-- D1: the least milliseconds between two leases; nil: delays count from ends only.
-- `visits_per_second` holds over all slots of a queue, so its pace also counts with one slot.
local function gap_of(q, r)
  if r[R_FROM_START] or r[R_SLOTS] > 1 then
    return max(min_delay(q, r), r[R_PACE])
  end
  return r[R_PACE] > 0 and r[R_PACE] or nil
end

-- D1: 1/visits_per_second passes between two leases, whatever the delays.
local function keep_pace(q, r)
  if r[R_PACE] > 0 and q[Q_LAST_START] >= 0 then
    postpone(q, q[Q_LAST_START] + r[R_PACE], 'delay')
  end
end
