-- Queues and tasks by number, read once a call and written at its end; what is counted (O5); and
-- lines, the sorted sets, whose changes are told together before anybody reads them.
local function send(command, line, words)
  for from = 1, #words, 1000 do
    call(command, line, unpack(words, from, min(from + 999, #words)))
  end
end

local queues, as_read, marked, orders, tasks, born = {}, {}, {}, {}, {}, {}
local counted, outcomes, lines, joining, leaving = {}, {}, {}, {}, {}

-- A score, or false: gone.
local function tell(line, member, score)
  local told = lines[line]
  if not told then
    told = {}
    lines[line] = told
  end
  told[member] = score
end

-- Who only joins a line, and is not taken back in this call.
local function join(line, member, score)
  local words = joining[line]
  if words then
    words[#words + 1] = score
    words[#words + 1] = member
  else
    joining[line] = { score, member }
  end
end

-- They stand there.
local function let_join(line)
  local words = joining[line]
  if words then
    joining[line] = nil
    send('ZADD', line, words)
  end
end

-- What was told of a line holds.
local function settle(line)
  local told = lines[line]
  if not told then
    return
  end
  lines[line] = nil
  local come, gone = {}, {}
  for member, score in pairs(told) do
    if score then
      come[#come + 1] = score
      come[#come + 1] = member
    else
      gone[#gone + 1] = member
    end
  end
  send('ZREM', line, gone)
  send('ZADD', line, come)
end

-- The hash a row is in.
local chunks = { [K_QUEUES] = {}, [K_TASKS] = {} }

local function chunk_of(table, number)
  local chunk, found = floor(number / CHUNK), chunks[table]
  local key = found[chunk]
  if not key then
    key = at .. table .. chunk
    found[chunk] = key
  end
  return key
end

-- A queue, to read it; whoever changes it marks it.
local function glimpse(number)
  local q = queues[number]
  if not q then
    local row = call('HGET', chunk_of(K_QUEUES, number), number)
    q = read(row)
    queues[number], as_read[number] = q, row
  end
  return q
end

local function queue_of(number)
  local q = glimpse(number)
  marked[number] = q
  return q
end

local function rules_of(q)
  local r = orders[q[Q_RULES]]
  if not r then
    r = decode(call('HGET', at .. K_ORDERS, q[Q_RULES]))
    if not r[R_PACE] then -- written before there was one: the rules themselves tell it
      local ruling = cjson.decode(call('HGET', at .. K_RULINGS, q[Q_RULES]))
      local rate = ruling.politeness.visits_per_second
      r[R_PACE] = rate > 0 and to_ms(min(1 / rate, 1e9)) or 0
    end
    orders[q[Q_RULES]] = r
  end
  return r
end

-- The row of a task, or nil; whoever changes it puts it among the `born`.
local function task_of(number)
  local t = tasks[number]
  if t then
    return t
  end
  local row = born[number] or call('HGET', chunk_of(K_TASKS, number), number)
  if not row then
    return nil
  end
  t = read(row)
  if not t[T_TOKEN] then
    t[T_TOKEN], t[T_CLAIMED], t[T_FINISHED], t[T_ANSWERED] = 0, -1, -1, -1
    t[T_ATTEMPTS], t[T_FAILURES], t[T_CRASHES], t[T_THROTTLES] = 0, 0, 0, 0
    t[T_NAMED], t[T_LENT], t[T_REASON], t[T_WORKER], t[T_HISTORY] = false, false, false, '', {}
    t[T_ANSWER] = ''
  end
  tasks[number] = t
  return t
end

-- A text begins with the length of its URL, and the URL.
local function url_of(t)
  return sub(t[T_TEXT], 4, 3 + parts('>I3', t[T_TEXT]))
end

local function due_of(t)
  return t[T_DUE] > 0 and t[T_DUE] or C[C_CREATED] + t[T_DISCOVERED]
end

-- B2: a revisit or replay starts with attempts at 0.
local function restart(t)
  t[T_ATTEMPTS], t[T_FAILURES], t[T_CRASHES], t[T_THROTTLES] = 0, 0, 0, 0
  t[T_FINISHED] = -1
end

local function count(kind, state, by)
  local field = kind * 8 + state
  counted[field] = (counted[field] or 0) + by
end

local function count_settled(q, state, by)
  local column = state == DONE and Q_DONE or state == DEAD and Q_DEAD or Q_DROPPED
  q[column] = q[column] + by
end

local function count_pending(q, by)
  C[C_PENDING] = C[C_PENDING] + by
  if q[Q_RETIRED] ~= '' then
    C[C_HELD] = C[C_HELD] + by
  end
end

local function count_in(q, state, by)
  if state == LEASED then
    C[C_LEASED] = C[C_LEASED] + by
    q[Q_IN_FLIGHT] = q[Q_IN_FLIGHT] + by
  elseif state == PENDING then
    count_pending(q, by)
  else
    count_settled(q, state, by)
  end
end

-- B2, O5: the one place where a task changes state and is counted.
local function move(number, t, q, state)
  local before = t[T_STATE]
  t[T_STATE] = state
  count(t[T_KIND], before, -1)
  count(t[T_KIND], state, 1)
  count_in(q, before, -1)
  count_in(q, state, 1)
  if before == LEASED then
    leaving[#leaving + 1] = pack('>I5', number)
  end
  born[number] = t
end

-- Every line is as it was told; whose lease ended may have another by now.
local function settle_all()
  send('ZREM', deadlines, leaving)
  leaving = {}
  for line, words in pairs(joining) do
    send('ZADD', line, words)
  end
  joining = {}
  for line in pairs(lines) do
    settle(line)
  end
end

local function keep(table, rows)
  local by_chunk = {}
  for number, row in pairs(rows) do
    local key = chunk_of(table, number)
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
    send('HSET', key, words)
  end
end

-- All that a call changed; nothing after this can fail.
local function commit()
  keep(K_QUEUES, marked)
  keep(K_TASKS, born)
  settle_all()
  for field, by in pairs(counted) do
    if by ~= 0 then
      call('HINCRBY', at .. K_COUNTS, field, by)
    end
  end
  for outcome, by in pairs(outcomes) do
    call('HINCRBY', at .. K_OUTCOMES, outcome, by)
  end
  C[C_CLOCK] = now
  call('SET', at .. K_CRAWL, encode(C))
end
