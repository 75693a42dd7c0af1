-- A store is begun, or found: KEYS[1] the prefix, ARGV 1 the format, 2 an id for a new one, 3 the
-- shard, 4 how many shards. Every command scripts use is tried first on a key of its own, since a
-- script that lacks a right half-way cannot be undone. Answers with what the store says of itself,
-- with "foreign", or with the error of a command that is refused.
local base, probe = KEYS[1], KEYS[1] .. 'probe'
local kept = redis.call('TYPE', base .. META).ok
if kept ~= 'none' and kept ~= 'hash' then
  return { 'foreign', base .. META }
end
local found = {}
if kept == 'hash' then
  found = redis.call('HMGET', base .. META, 'format', 'id', 'shard', 'shards')
end
if kept == 'hash' and not (found[1] and found[2]) then
  return { 'foreign', base .. META }
end
if found[1] and tonumber(found[1]) ~= tonumber(ARGV[1]) then
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
  { 'DEL', probe },
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
  { 'ZRANGEBYSCORE', probe, 0, 1 },
  { 'ZCARD', probe },
  { 'ZCOUNT', probe, 0, 1 },
  { 'ZLEXCOUNT', probe, '-', '+' },
  { 'ZREMRANGEBYRANK', probe, 1, 0 },
  { 'ZREM', probe, 'a' },
}
for _, trial in ipairs(trials) do
  local answer = redis.pcall(unpack(trial))
  -- A full server says so in its time; what is kept there can be read all the same.
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
