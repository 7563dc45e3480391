"""What a command that was typed has said."""


def succeeded(done):
    out, err, code = done
    assert code == 0, err
    return out


def failed(done, message, code=1):
    _, err, found = done
    assert found == code, err
    assert message in err
    if code == 1:
        assert err.startswith("elmo: ")
        assert err.count("\n") == 1
