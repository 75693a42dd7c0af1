-- What is known by 16 bytes: tables of small hashes, which the server keeps compact. A table grows
-- by one bucket at a time (linear hashing): one old bucket is parted, the others stay as they are.
local sizes = {} -- of each table: the largest power of two that it has as many buckets as

local function size_of(buckets)
  local size = sizes[buckets] or 1
  while size * 2 <= C[buckets] do
    size = size * 2
  end
  sizes[buckets] = size
  return size
end

-- Written by `format`: a number that is joined to a string takes twice as long.
local function bucket_of(table, buckets, id)
  local size = size_of(buckets)
  local place = parts('>I4', id) % (size * 2)
  return string.format('%s%s%d', at, table, place < C[buckets] and place or place - size)
end

local function find(table, buckets, id)
  local number = call('HGET', bucket_of(table, buckets, id), id)
  return number and tonumber(number)
end

local function part_bucket(table, buckets)
  local new, size = C[buckets], size_of(buckets)
  local old, gone, put = new - size, {}, {}
  local entries = call('HGETALL', at .. table .. old)
  for place = 1, #entries, 2 do
    if parts('>I4', entries[place]) % (size * 2) == new then
      gone[#gone + 1] = entries[place]
      put[#put + 1] = entries[place]
      put[#put + 1] = entries[place + 1]
    end
  end
  C[buckets] = new + 1
  for from = 1, #gone, 100 do
    call('HDEL', at .. table .. old, unpack(gone, from, min(from + 99, #gone)))
    call('HSET', at .. table .. new, unpack(put, from * 2 - 1, min(from * 2 + 198, #put)))
  end
end

-- False if it was known before. Numbers are given one by one, so `number` are known with this one.
local function learn(table, buckets, id, number)
  if call('HSETNX', bucket_of(table, buckets, id), id, number) == 0 then
    return false
  end
  if number > C[buckets] * BUCKET then
    part_bucket(table, buckets)
  end
  return true
end
