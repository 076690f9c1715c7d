-- One try. KEYS[5] the owner's tombstone.
-- ARGV: owner, n (number of this try), ttl ms, alive ms, queue (0/1), channel, holder.
-- Answers: token | {'busy', ours (0/1), place, expires in ms, token, granted ms, holder}
--          | {'type', what it is} | {'gone'}
local owner, n, channel, holder = ARGV[1], ARGV[2], ARGV[6], ARGV[7]

-- Nobody waits, the owner wasn't released, and it is free: nearly always so, and then nothing else is looked at.
if call('EXISTS', Q, KEYS[5]) == 0 and call('SET', L, owner, 'NX', 'PX', ARGV[3]) then
  return note(owner, n, channel, '0', '0', holder)
end
