-- Takes the lock from whoever has it. KEYS[5] where the owner that lost it so is kept for it to ask.
-- ARGV: token, or '' for any.
-- Answers: {'free'} | {'ended' or 'other', ours (0/1), expires in ms, token, granted ms, holder}
local current = redis.pcall('GET', L)
-- Refused for another reason than its type: no right to look, say.
if type(current) == 'table' and not string.find(current.err, 'WRONGTYPE') then return current end
if type(current) == 'table' then return {'type', call('TYPE', L).ok} end
if not current then return {'free'} end
local token, of, granted, channel, _, _, about = newest()
local left = call('PTTL', L)
local function answer(what)
  if of ~= current then return {what, 0, left, '', '', ''} end
  return {what, 1, left, token, granted, about}
end
if ARGV[1] ~= '' and not (of == current and token == ARGV[1]) then return answer('other') end
-- Whoever had it knows by its own clock once that time is over.
call('SET', KEYS[5], current, 'PX', math.max(left, 1))
call('DEL', L)
over(token)
pass('0', '0')
if of == current then tell(channel, 'broken ' .. current) end
return answer('ended')
