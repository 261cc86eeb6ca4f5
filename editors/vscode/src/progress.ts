/** Progress notifications with Cancel, for downloads and model loading. The language client's own have no Cancel. */
import { CancellationToken, Progress, ProgressLocation, window } from "vscode";
import {
  ProgressToken,
  WorkDoneProgressBegin,
  WorkDoneProgressEnd,
  WorkDoneProgressReport,
} from "vscode-languageclient";

const DELAY_MS = 2000; // a model on disk loads in about this time, and the status bar is enough for that

type Update = WorkDoneProgressBegin | WorkDoneProgressReport | WorkDoneProgressEnd;

/** Progress notifications by token. `cancel` is called with the token when the user cancels one. */
export class Notifications {
  private readonly shown = new Map<ProgressToken, Notification>();

  constructor(private readonly cancel: (token: ProgressToken) => void) {}

  show(token: ProgressToken, update: Update): void {
    if (update.kind === "begin") this.shown.set(token, new Notification(update, () => this.cancel(token)));
    else if (update.kind === "report") this.shown.get(token)?.report(update);
    else this.end(token);
  }

  /** Close all notifications, because the server has exited and will report nothing more. */
  endAll(): void {
    for (const token of [...this.shown.keys()]) this.end(token);
  }

  private end(token: ProgressToken): void {
    this.shown.get(token)?.end();
    this.shown.delete(token);
  }
}

class Notification {
  private readonly timer: NodeJS.Timeout;
  private bar: Progress<{ message?: string; increment?: number }> | undefined;
  private latest: WorkDoneProgressReport | WorkDoneProgressBegin;
  private percent = 0;
  private finish: () => void = () => undefined;

  constructor(begin: WorkDoneProgressBegin, onCancel: () => void) {
    this.latest = begin;
    this.timer = setTimeout(() => this.open(begin, onCancel), DELAY_MS);
  }

  report(update: WorkDoneProgressReport | WorkDoneProgressBegin): void {
    this.latest = { ...this.latest, ...update };
    const percent = this.latest.percentage ?? 0;
    const { message } = this.latest;
    this.bar?.report({ ...(message === undefined ? {} : { message }), increment: Math.max(0, percent - this.percent) });
    if (this.bar) this.percent = Math.max(percent, this.percent);
  }

  end(): void {
    clearTimeout(this.timer);
    this.finish();
  }

  private open(begin: WorkDoneProgressBegin, onCancel: () => void): void {
    const options = {
      location: ProgressLocation.Notification,
      title: begin.title,
      cancellable: begin.cancellable ?? false,
    };
    void window.withProgress(options, (bar, token: CancellationToken) => {
      token.onCancellationRequested(onCancel);
      this.bar = bar;
      this.report(this.latest as WorkDoneProgressReport);
      return new Promise<void>((resolve) => (this.finish = resolve));
    });
  }
}
