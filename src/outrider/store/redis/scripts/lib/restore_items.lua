-- include: add_task, replace_rules
-- Restoring the items of an export (I5). An item is an array: "crawl", when it was created, whether
-- every queue has its rules, their numbers, the rules as JSON, settings, modes with roots; "queue"
-- and the arguments of restore_queue; "task"; or "end" and the arguments of restore_end.
-- A restored queue that was listed is listed again as soon as it has a due task, since no queue may
-- be listed that cannot be served. Until then its `inactive_turn` tells where: below 0 ready, above
-- 0 its place in the inactive list.
local function is_restoring()
  return C and C[C_STATUS] == 'paused' and C[C_REASON] == RESTORING
end

local function restore_crawl(saved)
  if is_restoring() then
    return 0
  end
  C[C_CREATED], C[C_RULES_APPLIED] = saved[2], saved[3]
  replace_rules(saved[4], saved[5])
  if saved[6] ~= '' then
    call('SET', prefix .. K_SETTINGS, saved[6])
  end
  for _, mode in ipairs(saved[7]) do
    call('SADD', prefix .. K_MODES, mode[1])
    for position, root in ipairs(mode[2]) do
      call('ZADD', prefix .. K_ROOTS .. mode[1], 'NX', position, root)
    end
  end
  C[C_STATUS], C[C_REASON] = 'paused', RESTORING
  return 1
end

local function can_be_listed(q)
  local is_open = q[Q_RETIRED] == '' and not q[Q_PAUSED] and has_slot(q, rules_of(q))
  return is_open and q[Q_NEXT_READY] <= now
end

-- Insert a queue unless it exists. `fields` holds pairs of a position in the row and a value,
-- `list_state` is that of the export, `rules` the position of its rules in the batch. Return how
-- many were inserted.
local function restore_queue(batch, key, fields, list_state, rules)
  if find_queue(batch, key) then
    return 0
  end
  local counter, q = C[C_LAST_TURN], new_queue(batch, key)
  q[Q_RULES] = rules_number(batch, rules)
  for position = 1, #fields, 2 do
    q[fields[position]] = fields[position + 1]
  end
  C[C_LAST_TURN] = max(counter, q[Q_TURN], q[Q_INACTIVE_TURN])
  if list_state == UNLISTED or not can_be_listed(q) then
    q[Q_INACTIVE_TURN] = 0
  elseif list_state == READY then
    q[Q_INACTIVE_TURN] = -1
  end
  return 1
end

local function relist(q)
  if q[Q_INACTIVE_TURN] < 0 then
    q[Q_INACTIVE_TURN] = 0
    list_ready(q)
  else
    list_inactive(q)
  end
end

local function advance_wake_at(q, due)
  local instant = 0
  if q[Q_LIST_STATE] ~= UNLISTED then
    instant = due > now and due or 0
  elseif not q[Q_PAUSED] and q[Q_RETIRED] == '' then
    instant = max(q[Q_NEXT_READY], due)
  end
  if instant > 0 and (q[Q_WAKE_AT] == 0 or instant < q[Q_WAKE_AT]) then
    set_wake_at(q, instant)
  end
end

local function enqueue_restored(number, t, q)
  local due = due_of(t)
  insert_entry(q, t[T_LANE], entry_of(number, t), due)
  if due <= now then
    if q[Q_LIST_STATE] == READY then
      update_ready_keys(q, 0)
    elseif q[Q_LIST_STATE] == UNLISTED and q[Q_INACTIVE_TURN] ~= 0 and can_be_listed(q) then
      relist(q)
    end
  end
  advance_wake_at(q, due)
end

-- D7: the queue was exported before this visit of its task, so the visit is applied to the queue.
local function apply_later_visit(t, q)
  local ended = min(now, t[T_FINISHED] < 0 and due_of(t) or t[T_FINISHED])
  q[Q_LAST_START], q[Q_LAST_END] = t[T_CLAIMED], max(q[Q_LAST_END], ended)
  postpone(q, ended + delay_of(q, rules_of(q)), 'delay')
  keep_pace(q, rules_of(q))
  if q[Q_NEXT_READY] > now then
    unlist(q)
    set_wake_at(q, wake_time(q, rules_of(q)))
  end
end

-- Insert a task unless it exists. In `row`, a TaskRow, queue and kind are positions in the batch,
-- and `discovered` is a time. Return how many were inserted.
local function restore_task(batch, id, row)
  if index_find(K_KNOWN, C_KNOWN_BUCKETS, id) then
    return 0
  end
  local number, t = C[C_LAST_TASK] + 1, decode_row(row)
  local q = find_queue(batch, t[T_QUEUE])
  t[T_DISCOVERED] = t[T_DISCOVERED] - C[C_CREATED]
  C[C_LAST_TASK], dirty_queues[q[Q_NUMBER]] = number, q
  t[T_QUEUE], t[T_KIND] = q[Q_NUMBER], kind_of_batch(batch, t[T_KIND])
  index_insert(K_KNOWN, C_KNOWN_BUCKETS, id, number)
  tasks[number], dirty_tasks[number] = t, t
  append_to_queue_tasks(q[Q_NUMBER], pack('>I5', number))
  count_task(t[T_KIND], t[T_STATE], 1)
  count_in(q, t[T_STATE], 1)
  C[C_FORGOTTEN] = C[C_FORGOTTEN] + (is_forgotten(t) and 1 or 0)
  if t[T_STATE] == PENDING then
    count_priority(t[T_ORDER], 1)
    enqueue_restored(number, t, q)
  end
  if t[T_CLAIMED] > q[Q_LAST_START] then
    apply_later_visit(t, q)
  end
  return 1
end

-- End the restore. `fields` holds pairs of a position in the crawl's row and a value, `counts`
-- pairs of an outcome and its visits.
local function restore_end(fields, counts, timeline, logged)
  if not is_restoring() then
    return 0
  end
  local counter, arrivals = C[C_LAST_TURN], C[C_LAST_ARRIVAL]
  for position = 1, #fields, 2 do
    C[fields[position]] = fields[position + 1]
  end
  C[C_LAST_TURN] = max(counter, C[C_LAST_TURN])
  C[C_LAST_ARRIVAL] = max(arrivals, C[C_LAST_ARRIVAL], C[C_LAST_TASK])
  C[C_LAST_EVENT] = max(C[C_LAST_EVENT], logged)
  call('DEL', prefix .. K_OUTCOMES, prefix .. K_TIMELINE)
  for position = 1, #counts, 2 do
    outcomes[counts[position]] = counts[position + 1]
  end
  for _, moment in ipairs(timeline) do
    call('RPUSH', prefix .. K_TIMELINE, encode(moment))
  end
  log_event('crawl-restored', name, C[C_STATUS])
  if C[C_PENDING] > C[C_RETIRED_PENDING] then -- exported as pending, done before the export ended
    work_added()
  end
  return 1
end
