-- include: schedule
-- The indexes from 16 bytes (a fingerprint, or a digest of a key) to a number: small hashes, which
-- the server keeps compact. An index grows by one bucket at a time (linear hashing): one old bucket
-- is split, the others stay as they are. `buckets` is the field of the crawl's row with the number
-- of buckets.
local sizes = {} -- by index: the largest power of two up to its number of buckets

local function size_of(buckets)
  local size = sizes[buckets] or 1
  while size * 2 <= C[buckets] do
    size = size * 2
  end
  sizes[buckets] = size
  return size
end

-- By `format`, since concatenating a number takes twice as long.
local function bucket_key(table, buckets, id)
  local size = size_of(buckets)
  local bucket = unpack_bytes('>I4', id) % (size * 2)
  return string.format('%s%s%d', prefix, table, bucket < C[buckets] and bucket or bucket - size)
end

local function index_find(table, buckets, id)
  local number = call('HGET', bucket_key(table, buckets, id), id)
  return number and tonumber(number)
end

local function split_bucket(table, buckets)
  local new, size = C[buckets], size_of(buckets)
  local old, removed, added = new - size, {}, {}
  local entries = call('HGETALL', prefix .. table .. old)
  for position = 1, #entries, 2 do
    if unpack_bytes('>I4', entries[position]) % (size * 2) == new then
      removed[#removed + 1] = entries[position]
      added[#added + 1] = entries[position]
      added[#added + 1] = entries[position + 1]
    end
  end
  C[buckets] = new + 1
  for from = 1, #removed, 100 do
    call('HDEL', prefix .. table .. old, unpack(removed, from, min(from + 99, #removed)))
    local last = min(from * 2 + 198, #added)
    call('HSET', prefix .. table .. new, unpack(added, from * 2 - 1, last))
  end
end

-- Return false if the entry exists. Numbers are consecutive, so `number` is also how many entries
-- exist.
local function index_insert(table, buckets, id, number)
  if call('HSETNX', bucket_key(table, buckets, id), id, number) == 0 then
    return false
  end
  if number > C[buckets] * BUCKET then
    split_bucket(table, buckets)
  end
  return true
end
