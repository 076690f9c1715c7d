-- Ends an attempt or a hold on one node, and tells the first that waits; after redlock_common.lua.
-- ARGV: owner, number, keep ms (0: free it), tombstone ms (0: nothing of it may still land).
-- Answers {'freed' | 'expired' | 'another', owner and channel of who was told}
local keep, tombstone = tonumber(ARGV[3]), tonumber(ARGV[4])
if tombstone > 0 then call('SET', X, '1', 'PX', tombstone) end
local held, problem = current()
if problem and problem.err then return problem end
if problem then return {'another', '', ''} end

local queued = call('EXISTS', Q) == 1
if queued then leave(owner) end
if held and held ~= owner then return {'another', '', ''} end
if held and keep > 0 then
  call('PEXPIRE', L, keep)
elseif held then
  free()
end
-- Also of one that is kept: who was told another time looks anew.
local head, channel = '', ''
if queued then
  local time = call('TIME')
  head, channel = tell(time[1] * 1000 + math.floor(time[2] / 1000))
end
return {held and 'freed' or 'expired', head, channel}
