"""Functions that scripts begin with. They are `scheduler/sharing/store_life.py`; tests hold the two together.

Fields of the hash that `turn` and `learns` are given: `life` is the name of the life; `since`, `heard` and `till` are
there while it learns. `run` and `learns` (when it began to learn) are the marks that nodes of before 2026-11-24 know a
life by. Of slots they want the bare process in `run`, of windows and budgets the name of the life.
"""

from __future__ import annotations

from typing import Final

LIFE: Final = """
local function is_ours(life) return life and string.match(life, '^[^/]*') == run end
local function turn(key, learning, longest, bare)
  local life, till = redis.call('HGET', key, 'life'), tonumber(redis.call('HGET', key, 'till') or -1)
  if not is_ours(life) then
    life = redis.call('HGET', key, 'run')
    if not is_ours(life) then
      life, till = run .. '/' .. string.format('%.0f', now), now + learning
      redis.call('HSET', key, 'run', bare and run or life, 'life', life)
      redis.call('HSET', key, 'since', now, 'till', till, 'heard', now, 'learns', now)
      return life, till, true
    end
    if life == run then life = run .. '/' .. string.format('%.0f', now) end
    redis.call('HSET', key, 'life', life)
  end
  local learns = tonumber(redis.call('HGET', key, 'learns') or -1)
  if till < 0 and learns >= 0 then
    till = learns + learning
    redis.call('HSET', key, 'since', learns, 'heard', now)
  end
  if till >= 0 then
    if now - tonumber(redis.call('HGET', key, 'heard')) > math.floor(learning / 4) then
      till = math.max(till, math.min(now + learning, tonumber(redis.call('HGET', key, 'since')) + longest))
    end
    till = math.max(till, learns + learning)
    redis.call('HSET', key, 'heard', now, 'till', till)
  end
  return life, till, false
end
local function learns(key, till, known, nodes, learning)
  if till >= 0 and now < till and known < nodes then
    redis.call('HSET', key, 'till', till, 'learns', till - learning)
    return true
  end
  redis.call('HDEL', key, 'till', 'since', 'heard', 'learns')
  return false
end
"""
