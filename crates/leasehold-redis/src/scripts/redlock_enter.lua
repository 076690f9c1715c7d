-- Merges into the node's record, and answers whether it did. KEYS: R.
-- ARGV: version seen (0: none), durable (0/1), longest ms, floor, how many runs, then name and run of each, then name
-- and run of each other node.
-- With names, only while the version is still that. Without, only longest is raised.
-- A first record is laid without a floor, so that the node gives no lock before it is entered as one that has it. When
-- that was is its mark, and where its versions begin: what was meant for an earlier record and comes late changes nothing.
local call = redis.call
local R = KEYS[1]
local runs, names = tonumber(ARGV[5]), ARGV[6] ~= nil
local version = tonumber(call('HGET', R, 'version')) or 0
if names and version ~= tonumber(ARGV[1]) then return 0 end
-- A node without its memory isn't given half a record.
if not names and version == 0 then return 0 end

local function raise(field, value)
  if tonumber(value) > (tonumber(call('HGET', R, field)) or -1) then call('HSET', R, field, value) end
end
raise('longest', ARGV[3])
if not names then return 1 end
if version == 0 then
  local time = call('TIME')
  version = tonumber(time[1] .. string.sub('00000' .. time[2], -6))
  call('HSET', R, 'born', string.format('%.0f', version))
else
  raise('floor', ARGV[4])
end
local at = 6
while ARGV[at] do
  local field, run = 'run:' .. ARGV[at], ARGV[at + 1]
  local known = call('HGET', R, field)
  if at < 6 + 2 * runs or not known or known == '' then call('HSET', R, field, run) end
  at = at + 2
end
call('HSET', R, 'durable', ARGV[2], 'version', string.format('%.0f', version + 1))
return 1
