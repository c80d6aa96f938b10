// Gaps in the history: the agent did not run, or the target did not exist.

// A step that is longer than this many usual ones is a gap.
const USUAL_STEPS = 3;

// The usual step between ascending times: the median. `otherwise` for fewer than two times.
export function usualStep(times, otherwise) {
  const steps = times.slice(1).map((at, index) => at - times[index]);
  return steps.sort((a, b) => a - b)[Math.floor(steps.length / 2)] ?? otherwise;
}

export const isGap = (from, to, usual) => to - from > USUAL_STEPS * usual;
