-- Takes the lock from whoever has it. ARGV: token, or '' for any.
-- Answers: {'free'} | {'ended' or 'other', ours (0/1), expires in ms, token, granted ms, holder}
local current = redis.pcall('GET', L)
-- Refused for another reason than its type: no right to look, say.
if type(current) == 'table' and not string.find(current.err, 'WRONGTYPE') then return current end
if type(current) == 'table' then return {'type', call('TYPE', L).ok} end
if not current then return {'free'} end
local about = call('HMGET', F, 'o', 'c', 'g', 'm', 'h')
local ours = about[1] == current
local function answer(what)
  return {what, ours and 1 or 0, call('PTTL', L), ours and about[2] or '', ours and about[3] or '', ours and about[4] or ''}
end
if ARGV[1] ~= '' and not (ours and about[2] == ARGV[1]) then return answer('other') end
local ended = answer('ended')
call('HSET', F, 'b', current)
if call('PTTL', F) < 0 then call('PEXPIRE', F, week) end
call('DEL', L)
call('HDEL', F, 'o', 'n', 'm', 'g', 'h', 's', 'S')
pass(0)
if ours and about[5] then tell(about[5], 'broken ' .. current) end
return ended
