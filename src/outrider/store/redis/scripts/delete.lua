-- include: schedule
-- delete: cancel a crawl for good, or remove a part of it (I1). What names tasks and queues goes
-- first, so that nothing finds what is removed next; each count in the crawl's row says what is
-- left. Large keys are freed by the server in the background.
-- KEYS[1]: the prefix of all keys. ARGV[1..4]: see lib/crawl.lua.
-- ARGV[5]: how many tasks, queues or keys at most; a chunk of tasks is removed whole. ARGV[6]: who
-- acts (see `sign`). ARGV[7..]: the crawl's single keys.
-- Returns how many tasks were removed, and 1 if there is more to remove.
if not C then
  return { 0, 0 }
end
if C[C_STATUS] ~= 'cancelled' or C[C_REASON] ~= DELETING then
  check_memory()
  sign(ARGV[6])
  change_status('cancelled', DELETING)
  commit()
  return { 0, 1 }
end
local left, removed, keys = tonumber(ARGV[5]), 0, {}

local function unlink(key)
  keys[#keys + 1] = prefix .. key
end

local function unlink_buckets(table, buckets)
  while left > 0 and C[buckets] > 0 do
    C[buckets], left = C[buckets] - 1, left - 1
    unlink(table .. C[buckets])
  end
end

local function unlink_tasks()
  while left > 0 and C[C_LAST_TASK] > 0 do
    local chunk = floor(C[C_LAST_TASK] / CHUNK)
    local before = max(0, chunk * CHUNK - 1)
    unlink(K_TASKS .. chunk)
    removed, left = removed + C[C_LAST_TASK] - before, left - C[C_LAST_TASK] + before
    C[C_LAST_TASK] = before
  end
end

local function unlink_queues()
  while left > 0 and C[C_LAST_QUEUE] > 0 do
    local number = C[C_LAST_QUEUE]
    for _, list in ipairs({ K_LANE0, K_LANE1, K_DELAYED, K_QUEUE_TASKS }) do
      unlink(list .. number)
    end
    if number == 1 or number % CHUNK == 0 then
      unlink(K_QUEUES .. floor(number / CHUNK))
    end
    C[C_LAST_QUEUE], left = number - 1, left - 1
  end
end

local function unlink_rest()
  for _, mode in ipairs(call('SMEMBERS', prefix .. K_MODES)) do
    unlink(K_ROOTS .. mode)
  end
  for position = 7, #ARGV do
    unlink(ARGV[position])
  end
  local token, epoch = unpack(call('HMGET', base .. META, 'token', 'epoch'))
  call('HSET', base .. META, 'token', max(tonumber(token or 0), C[C_LAST_TOKEN]))
  call('HSET', base .. META, 'epoch', max(tonumber(epoch or 0), C[C_EPOCH] + 1))
  call('HDEL', base .. K_CRAWLS, name)
end

unlink_buckets(K_KNOWN, C_KNOWN_BUCKETS)
unlink_buckets(K_KEYS, C_KEY_BUCKETS)
unlink_tasks()
unlink_queues()
local is_over = left > 0
if is_over then
  unlink_rest()
end
for from = 1, #keys, 1000 do
  call('UNLINK', unpack(keys, from, min(from + 999, #keys)))
end
if not is_over then
  commit()
end
return { removed, is_over and 0 or 1 }
