-- init_store: create a store, or open an existing one. Every command that scripts use is tried
-- first, on a key of its own: a script that lacks a permission half-way could not be undone.
-- KEYS[1]: the prefix of all keys. ARGV[1]: the format. ARGV[2]: an id for a new store. ARGV[3]:
-- the shard. ARGV[4]: how many shards there are.
-- Returns the store's format, id, shard and number of shards; or "foreign" and a key of another
-- program; or "format" and the format of a newer Outrider; or "refused", a command and its error.
local base, probe = KEYS[1], KEYS[1] .. 'probe'
local kind = redis.call('TYPE', base .. META).ok
if kind ~= 'none' and kind ~= 'hash' then
  return { 'foreign', base .. META }
end
local found = {}
if kind == 'hash' then
  found = redis.call('HMGET', base .. META, 'format', 'id', 'shard', 'shards')
end
if kind == 'hash' and not (found[1] and found[2]) then
  return { 'foreign', base .. META }
end
if found[1] and tonumber(found[1]) > tonumber(ARGV[1]) then
  return { 'format', found[1] }
end
local crawls = redis.call('TYPE', base .. K_CRAWLS).ok
if crawls ~= 'none' and not (crawls == 'hash' and found[1]) then
  return { 'foreign', base .. K_CRAWLS }
end

local trials = {
  { 'TIME' },
  { 'SET', probe, '' },
  { 'GET', probe },
  { 'EXISTS', probe },
  { 'APPEND', probe, 'a' },
  { 'STRLEN', probe },
  { 'GETRANGE', probe, 0, -1 },
  { 'SETRANGE', probe, 0, 'a' },
  { 'DEL', probe },
  { 'UNLINK', probe },
  { 'HSET', probe, 'a', 1 },
  { 'HSETNX', probe, 'a', 1 },
  { 'HINCRBY', probe, 'a', 1 },
  { 'HGET', probe, 'a' },
  { 'HMGET', probe, 'a' },
  { 'HGETALL', probe },
  { 'HVALS', probe },
  { 'HLEN', probe },
  { 'HDEL', probe, 'a' },
  { 'RPUSH', probe, 'a' },
  { 'LTRIM', probe, -1, -1 },
  { 'LRANGE', probe, 0, -1 },
  { 'LLEN', probe },
  { 'DEL', probe },
  { 'SADD', probe, 'a' },
  { 'SMEMBERS', probe },
  { 'DEL', probe },
  { 'ZADD', probe, 0, 'a' },
  { 'ZRANGE', probe, 0, 0 },
  { 'ZRANGEBYLEX', probe, '-', '+' },
  { 'ZRANGEBYSCORE', probe, 0, 1 },
  { 'ZCARD', probe },
  { 'ZCOUNT', probe, 0, 1 },
  { 'ZLEXCOUNT', probe, '-', '+' },
  { 'ZREMRANGEBYRANK', probe, 1, 0 },
  { 'ZREM', probe, 'a' },
}
for _, trial in ipairs(trials) do
  local answer = redis.pcall(unpack(trial))
  -- A full server refuses writes later, with its own error; its crawls can be read.
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'OOM', 1, true) then
    redis.pcall('DEL', probe)
    return { 'refused', trial[1], answer.err }
  end
end
redis.pcall('DEL', probe)
if not found[1] then
  found = { ARGV[1], ARGV[2], ARGV[3], ARGV[4] }
  local names = { 'format', found[1], 'id', found[2], 'shard', found[3], 'shards', found[4] }
  redis.call('HSET', base .. META, unpack(names))
end
return found
