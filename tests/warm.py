"""A process that has imported torch becomes commands: each `elmo` is a fork of it, not a start.

Importing takes seconds, and the pages of the documents type dozens of commands. The command that
is put on the PATH hands its arguments, folder, environment and open files to the process, and ends
with the exit code that comes back.
"""

import gc
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

COMMAND = """#!{python} -IS
import json, os, socket, sys
if sys.argv[1:2] == ["serve"]:  # is killed from outside, so it has to be a process of its own
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
asked = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
with socket.socket(socket.AF_UNIX) as warm:
    warm.connect({address!r})
    socket.send_fds(warm, [asked], [0, 1, 2])
    warm.shutdown(socket.SHUT_WR)
    sys.exit(int(warm.recv(16) or 1))
"""


@contextmanager
def warm_command():
    """A folder with an `elmo` for the PATH."""
    real = str(Path(sys.executable).with_name("elmo"))
    folder = Path(tempfile.mkdtemp())
    address = str(folder / "warm")
    (folder / "elmo").write_text(COMMAND.format(python=sys.executable, real=real, address=address))
    (folder / "elmo").chmod(0o755)
    process = subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"ready\n"
        yield folder
    finally:
        process.terminate()
        process.communicate()
        shutil.rmtree(folder)


def _wait_for_a_command(address):
    """Come back in a new process for each command, with its arguments, folder and files."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    os.write(1, b"ready\n")
    while True:
        connection, _ = listener.accept()
        if os.fork():  # the listener goes on listening
            connection.close()
            _bury_the_dead()
            continue
        listener.close()
        asked, files, *_ = socket.recv_fds(connection, 2**20, 3)
        while more := connection.recv(2**20):
            asked += more
        if child := os.fork():  # this one waits for the command's end, and tells of it
            for file in files:
                os.close(file)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            connection.sendall(str(code).encode())
            os._exit(0)
        connection.close()
        arguments, folder, environment = json.loads(asked)
        for own, file in enumerate(files):
            os.dup2(file, own)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = ["elmo", *arguments]
        return


def _bury_the_dead():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


if __name__ == "__main__":
    import elmokit.cli
    import elmokit.pretraining.dry_run
    import elmokit.pretraining.trainer
    import elmokit.tasks.task_registry
    import elmokit.tasks.trainer

    gc.freeze()  # what is shared stays shared
    _wait_for_a_command(sys.argv[1])
    code = 0
    try:
        elmokit.cli.main()
    except SystemExit as end:
        code = end.code or 0
    if isinstance(code, str):  # what the interpreter does with it
        sys.stderr.write(code + "\n")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking torch down would cost a second
