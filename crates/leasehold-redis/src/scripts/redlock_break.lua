-- Takes the lock from this owner, and tells the first that waits; after redlock_common.lua.
-- KEYS[5]: where the owner that lost it so is kept for it to ask. ARGV: mark of the owner as redlock_look.lua has it,
-- number.
-- Answers 1 if it was there, 0 if not.
local held, problem = current()
if problem and problem.err then return problem end
if not held or redis.sha1hex(held) ~= owner then return 0 end
local channel = call('HGET', F, 'o') == held and call('HGET', F, 'h')
-- Whoever had it knows by its own clock once that time is over.
call('SET', KEYS[5], held, 'PX', math.max(call('PTTL', L), 1))
free()
if channel then redis.pcall('PUBLISH', channel, 'broken ' .. held) end
local time = call('TIME')
tell(time[1] * 1000 + math.floor(time[2] / 1000))
return 1
