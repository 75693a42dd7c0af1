-- include: crawl
-- The state of a call: queues and tasks by number, read once and written at its end; counters (O5);
-- and changes of lists (the sorted sets), which are sent together before a list is read.
local function send_in_parts(command, list, words)
  for from = 1, #words, 1000 do
    call(command, list, unpack(words, from, min(from + 999, #words)))
  end
end

local queues, as_read, dirty_queues, rules_rows, tasks, dirty_tasks = {}, {}, {}, {}, {}, {}
local count_changes, outcomes, changes, additions, ended_leases = {}, {}, {}, {}, {}

-- Give a member of a list a score, or remove it (false).
local function set_member(list, member, score)
  local changed = changes[list]
  if not changed then
    changed = {}
    changes[list] = changed
  end
  changed[member] = score
end

-- Add a new member to a list. Cheaper than set_member; it must not be removed by set_member.
local function add_member(list, member, score)
  local words = additions[list]
  if words then
    words[#words + 1] = score
    words[#words + 1] = member
  else
    additions[list] = { score, member }
  end
end

-- Send the additions to a list.
local function flush_additions(list)
  local words = additions[list]
  if words then
    additions[list] = nil
    send_in_parts('ZADD', list, words)
  end
end

-- Send the changes of a list.
local function flush(list)
  local changed = changes[list]
  if not changed then
    return
  end
  changes[list] = nil
  local added, removed = {}, {}
  for member, score in pairs(changed) do
    if score then
      added[#added + 1] = score
      added[#added + 1] = member
    else
      removed[#removed + 1] = member
    end
  end
  send_in_parts('ZREM', list, removed)
  send_in_parts('ZADD', list, added)
end

-- The tasks of a queue are listed by number. One that moves to another queue stays in the list of the
-- old one: readers of a list compare the queue in the task's row.
local new_queue_tasks = {} -- by queue: packed numbers of new tasks, which are appended together

local function append_to_queue_tasks(queue, packed)
  local found = new_queue_tasks[queue]
  new_queue_tasks[queue] = found and found .. packed or packed
end

local function write_queue_tasks()
  for queue, packed in pairs(new_queue_tasks) do
    call('APPEND', string.format('%s%s%d', prefix, K_QUEUE_TASKS, queue), packed)
  end
  new_queue_tasks = {}
end

-- How many numbers of a list are not above a number.
local function position_in_queue_tasks(list, number)
  local low, high = 0, call('STRLEN', list) / 5
  while low < high do
    local middle = floor((low + high) / 2)
    if unpack_bytes('>I5', call('GETRANGE', list, middle * 5, middle * 5 + 4)) <= number then
      low = middle + 1
    else
      high = middle
    end
  end
  return low
end

-- Insert a known task, which all new ones follow, unless it was in this queue before. It may be new
-- in this call.
local function insert_into_queue_tasks(queue, number)
  write_queue_tasks()
  local list, packed = prefix .. K_QUEUE_TASKS .. queue, pack('>I5', number)
  local offset = position_in_queue_tasks(list, number) * 5
  if offset == 0 or call('GETRANGE', list, offset - 5, offset - 1) ~= packed then
    call('SETRANGE', list, offset, packed .. call('GETRANGE', list, offset, -1))
  end
end

local chunks = { [K_QUEUES] = {}, [K_TASKS] = {} }

-- The key of the hash that holds a row.
local function chunk_key(table, number)
  local chunk, found = floor(number / CHUNK), chunks[table]
  local key = found[chunk]
  if not key then
    key = prefix .. table .. chunk
    found[chunk] = key
  end
  return key
end

-- A queue, to read it; to change it, put it into dirty_queues.
local function peek_queue(number)
  local q = queues[number]
  if not q then
    local row = call('HGET', chunk_key(K_QUEUES, number), number)
    q = decode_row(row)
    q[Q_COUNTED_AS] = q[Q_COUNTED_AS] or -1
    queues[number], as_read[number] = q, row
  end
  return q
end

-- A queue, to change it.
local function queue_by_number(number)
  local q = peek_queue(number)
  dirty_queues[number] = q
  return q
end

-- D1: by how much the longest of the delays that leases draw exceeds the shortest; 0: none is drawn.
local function spread_of(politeness)
  local shortest, longest = politeness.delay, politeness.delay_to
  local draws = politeness.count_from == 'start' and shortest >= 0 and longest > shortest
  return draws and longest - shortest or 0
end

-- What lists a queue by its key: nothing sorts before NUL, which is in no key.
local function name_of_queue(q)
  return q[Q_KEY] .. '\0' .. pack('>I5', q[Q_NUMBER])
end

local function rules_of(q)
  local r = rules_rows[q[Q_RULES]]
  if not r then
    r = decode(call('HGET', prefix .. K_RULES_ROWS, q[Q_RULES]))
    if not r[R_PACE] then -- written before this field existed
      local rules = cjson.decode(call('HGET', prefix .. K_RULES_TEXTS, q[Q_RULES]))
      local rate = rules.politeness.visits_per_second
      r[R_PACE] = rate > 0 and to_ms(min(1 / rate, 1e9)) or 0
    end
    if not r[R_SPREAD] then -- likewise
      local rules = cjson.decode(call('HGET', prefix .. K_RULES_TEXTS, q[Q_RULES]))
      r[R_SPREAD] = spread_of(rules.politeness)
    end
    rules_rows[q[Q_RULES]] = r
  end
  return r
end

-- Fill in what the row of a task does not have before its first visit.
local function fill_history(t)
  t[T_TOKEN], t[T_CLAIMED], t[T_FINISHED], t[T_ANSWERED] = 0, -1, -1, -1
  t[T_ATTEMPTS], t[T_FAILURES], t[T_CRASHES], t[T_THROTTLES] = 0, 0, 0, 0
  t[T_NAMED], t[T_LOANED], t[T_REASON], t[T_WORKER], t[T_HISTORY] = false, false, false, '', {}
  t[T_ANSWER], t[T_META], t[T_DRAWN], t[T_BLOCKS] = '', '', -1, 0
  t[T_LEASED], t[T_LASTS] = -1, 0
end

-- A task, or nil; to change it, put it into dirty_tasks.
local function task_by_number(number)
  local t = tasks[number]
  if t then
    return t
  end
  local row = dirty_tasks[number] or call('HGET', chunk_key(K_TASKS, number), number)
  if not row then
    return nil
  end
  t = decode_row(row)
  if not t[T_TOKEN] then
    fill_history(t)
  end
  if not t[T_LEASE_TURN] then -- written before these fields existed
    t[T_META], t[T_DRAWN], t[T_BLOCKS] = t[T_META] or '', t[T_DRAWN] or -1, t[T_BLOCKS] or 0
    t[T_LEASED], t[T_LASTS], t[T_LEASE_TURN] = t[T_LEASED] or -1, t[T_LASTS] or 0, 0
  end
  tasks[number] = t
  return t
end

-- The URL of a task: its text begins with the length of the URL, and the URL.
local function url_of(t)
  return sub(t[T_TEXT], 4, 3 + unpack_bytes('>I3', t[T_TEXT]))
end

-- C10: tell whether the next add admits a task as if it were not known.
local function is_forgotten(t)
  return t[T_STATE] == DROPPED and t[T_REASON] == FORGOTTEN
end

local function due_of(t)
  return t[T_DUE] > 0 and t[T_DUE] or C[C_CREATED] + t[T_DISCOVERED]
end

-- B2: a revisit or replay starts with attempts at 0.
local function reset_attempts(t)
  t[T_ATTEMPTS], t[T_FAILURES], t[T_CRASHES], t[T_THROTTLES] = 0, 0, 0, 0
  t[T_BLOCKS], t[T_FINISHED] = 0, -1
end

local function count_task(kind, state, by)
  local field = kind * 8 + state
  count_changes[field] = (count_changes[field] or 0) + by
end

-- I2, O3: what the end of a run reports: tasks by state, those of this call included, and visits.
local function counts_at_end()
  local totals, stored = { [DONE] = 0, [DEAD] = 0, [DROPPED] = 0 }, call('HGETALL', prefix .. K_COUNTS)
  local function count(field, by)
    local state = field % 8
    totals[state] = totals[state] and totals[state] + by
  end
  for position = 1, #stored, 2 do
    count(tonumber(stored[position]), tonumber(stored[position + 1]))
  end
  for field, by in pairs(count_changes) do
    count(field, by)
  end
  return {
    known = C[C_LAST_TASK],
    done = totals[DONE],
    dead = totals[DEAD],
    dropped = totals[DROPPED],
    held = C[C_PENDING],
    visits = C[C_VISITS],
  }
end

local function count_ended(q, state, by)
  local column = state == DONE and Q_DONE or state == DEAD and Q_DEAD or Q_DROPPED
  q[column] = q[column] + by
end

local function count_pending(q, by)
  C[C_PENDING] = C[C_PENDING] + by
  if q[Q_RETIRED] ~= '' then
    C[C_RETIRED_PENDING] = C[C_RETIRED_PENDING] + by
  end
end

-- F8, O5: count a pending task by the priority in its order key, unless that is normal.
local function count_priority(order, by)
  local bits = unpack_bytes('>I4', order, 3)
  if bits >= MIN_LOW then
    C[C_LOW] = C[C_LOW] + by
  elseif bits <= MAX_CRITICAL then
    C[C_CRITICAL] = C[C_CRITICAL] + by
  elseif bits <= MAX_HIGH then
    C[C_HIGH] = C[C_HIGH] + by
  end
end

local function count_in(q, state, by)
  if state == LEASED then
    C[C_LEASED] = C[C_LEASED] + by
    q[Q_IN_FLIGHT] = q[Q_IN_FLIGHT] + by
  elseif state == PENDING then
    count_pending(q, by)
  else
    count_ended(q, state, by)
  end
end

-- B2, O5: the one place where a task changes state and is counted.
local function set_state(number, t, q, state)
  local before = t[T_STATE]
  t[T_STATE] = state
  count_task(t[T_KIND], before, -1)
  count_task(t[T_KIND], state, 1)
  count_in(q, before, -1)
  count_in(q, state, 1)
  if before == PENDING then
    count_priority(t[T_ORDER], -1)
  end
  if state == PENDING then
    count_priority(t[T_ORDER], 1)
  end
  if before == LEASED then
    ended_leases[#ended_leases + 1] = pack('>I5', number)
    t[T_DRAWN] = -1
  end
  dirty_tasks[number] = t
end

-- Send all changes of lists. Ended leases first: their tasks may have been leased again.
local function flush_all()
  send_in_parts('ZREM', deadlines, ended_leases)
  if C[C_LISTS_LEASES] then
    send_in_parts('ZREM', lease_order, ended_leases)
  end
  ended_leases = {}
  for list, words in pairs(additions) do
    send_in_parts('ZADD', list, words)
  end
  additions = {}
  for list in pairs(changes) do
    flush(list)
  end
end

local function write_rows(table, rows)
  local by_chunk = {}
  for number, row in pairs(rows) do
    local key = chunk_key(table, number)
    row = type(row) == 'table' and encode(row) or row
    local words = by_chunk[key]
    if not words then
      words = {}
      by_chunk[key] = words
    end
    words[#words + 1] = number
    words[#words + 1] = row
  end
  for key, words in pairs(by_chunk) do
    send_in_parts('HSET', key, words)
  end
end

-- C1: the state in which the schedule has a queue, as the field of the crawl that counts it; no
-- time is compared. A queue that only time can make ready has a wake time: it is snoozed.
local function count_of(q)
  if q[Q_LIST_STATE] ~= UNLISTED then
    return q[Q_LIST_STATE] == READY and C_READY_QUEUES or C_INACTIVE_QUEUES
  elseif q[Q_RETIRED] ~= '' then
    return C_RETIRED_QUEUES
  elseif q[Q_PAUSED] then
    return C_PAUSED_QUEUES
  elseif q[Q_WAKE_AT] ~= 0 then
    return C_SNOOZED_QUEUES
  elseif q[Q_IN_FLIGHT] + q[Q_NAMED] > 0 then
    return C_BUSY_QUEUES
  end
  local has_tasks = q[Q_TOP0] ~= '' or q[Q_TOP1] ~= '' or q[Q_NEXT_DUE] >= 0
  return has_tasks and C_BUSY_QUEUES or C_EMPTY_QUEUES
end

-- O5: count the changed queues with the state that each has now.
local function count_queues()
  for _, q in pairs(dirty_queues) do
    local field, before = count_of(q), q[Q_COUNTED_AS]
    if field ~= C_RETIRED_QUEUES + before then
      if before >= 0 then
        C[C_RETIRED_QUEUES + before] = C[C_RETIRED_QUEUES + before] - 1
      end
      C[field] = C[field] + 1
      q[Q_COUNTED_AS] = field - C_RETIRED_QUEUES
    end
  end
end

-- Write all that the call changed. Nothing may fail after this. `is_awaited`: a claim found too
-- little, so the next verb that brings work notifies.
local function commit(is_awaited)
  count_queues()
  write_rows(K_QUEUES, dirty_queues)
  write_rows(K_TASKS, dirty_tasks)
  write_queue_tasks()
  flush_all()
  for field, by in pairs(count_changes) do
    if by ~= 0 then
      call('HINCRBY', prefix .. K_COUNTS, field, by)
    end
  end
  for outcome, by in pairs(outcomes) do
    call('HINCRBY', prefix .. K_OUTCOMES, outcome, by)
  end
  notify_waiters()
  C[C_IS_AWAITED] = C[C_IS_AWAITED] or is_awaited or false
  C[C_CLOCK] = now
  call('SET', prefix .. K_CRAWL, encode(C))
end
