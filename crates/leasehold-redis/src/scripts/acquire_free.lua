-- One try. KEYS[5] the owner's tombstone.
-- ARGV: owner, n (number of this try), ttl ms, alive ms, queue (0/1), channel, holder.
-- Answers: {'granted', token, n, ttl} | {'busy', ours (0/1), place, expires in ms, token, granted ms, holder}
--          | {'type', what it is} | {'gone'}
local owner, n, channel, holder = ARGV[1], ARGV[2], ARGV[6], ARGV[7]

-- Free, nobody waits, and the owner wasn't released: nearly always so, and then nothing else is looked at.
if call('EXISTS', L, Q, KEYS[5]) == 0 then
  return {'granted', grant(owner, n, ARGV[3], channel, holder, '0'), n, tonumber(ARGV[3])}
end
