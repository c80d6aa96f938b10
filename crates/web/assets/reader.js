// Reads what a changing period needs from the history: waits for the changes to pause, and shows only the newest
// answer. All readers take turns, because the agent reads its history for few at a time.

const BUSY_MS = 1000,
  MOST_TRIES = 5;

let turn = Promise.resolve();

// Runs `read` after all that were asked for before.
function inTurn(read) {
  const answer = turn.then(read);
  turn = answer.catch(() => {});
  return answer;
}

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Reader {
  // { delay, read(wanted, signal), done(answer), failed(error) }; `delay` in milliseconds.
  constructor(steps) {
    this.steps = steps;
    this.wanted = null;
    this.timer = null;
    this.abort = new AbortController();
    this.isReading = false;
  }

  want(wanted) {
    this.wanted = wanted;
    if (!this.isReading) this.timer ??= setTimeout(() => this.run(), this.steps.delay);
  }

  async run() {
    this.timer = null;
    this.isReading = true;
    try {
      const answer = await inTurn(() => this.read());
      if (!this.abort.signal.aborted) this.steps.done(answer);
    } catch (error) {
      if (!this.abort.signal.aborted) this.steps.failed(error);
    }
    this.isReading = false;
    if (this.wanted && !this.abort.signal.aborted) this.want(this.wanted);
  }

  // The newest wish when its turn comes.
  async read() {
    for (let tries = 1; ; tries += 1) {
      this.abort.signal.throwIfAborted();
      const wanted = this.wanted ?? this.last;
      this.wanted = null;
      this.last = wanted;
      try {
        return await this.steps.read(wanted, this.abort.signal);
      } catch (error) {
        if (!error.isBusy || tries === MOST_TRIES) throw error;
        await wait(BUSY_MS);
      }
    }
  }

  destroy() {
    clearTimeout(this.timer);
    this.abort.abort();
  }
}
