"""Functions that scripts begin with. They are `scheduler/sharing/store_life.py`; tests hold the two together.

Fields of the hash that `turn` and `learns` are given: `run` is the name of the life; `since`, `heard` and `till` are
there while it learns.
"""

from __future__ import annotations

from typing import Final

LIFE: Final = """
local function turn(key, learning, longest)
  local life, till = redis.call('HGET', key, 'run'), tonumber(redis.call('HGET', key, 'till') or -1)
  if not life or string.match(life, '^[^/]*') ~= run then
    life, till = run .. '/' .. string.format('%.0f', now), now + learning
    redis.call('HSET', key, 'run', life, 'since', now, 'till', till, 'heard', now)
    return life, till, true
  end
  if till >= 0 then
    if now - tonumber(redis.call('HGET', key, 'heard')) > math.floor(learning / 4) then
      till = math.max(till, math.min(now + learning, tonumber(redis.call('HGET', key, 'since')) + longest))
    end
    redis.call('HSET', key, 'heard', now, 'till', till)
  end
  return life, till, false
end
local function learns(key, till, known, nodes)
  if till >= 0 and now < till and known < nodes then
    redis.call('HSET', key, 'till', till)
    return true
  end
  redis.call('HDEL', key, 'till', 'since', 'heard')
  return false
end
"""
