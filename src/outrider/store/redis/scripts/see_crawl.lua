-- A crawl's row, the moment, and what it counts: kinds, counts, outcomes, timeline.
if not C then
  return { false, now }
end
return {
  encode(C),
  now,
  call('HGETALL', at .. K_KINDS),
  call('HGETALL', at .. K_COUNTS),
  call('HGETALL', at .. K_OUTCOMES),
  call('LRANGE', at .. K_TIMELINE, 0, -1),
}
