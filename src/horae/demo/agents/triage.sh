# An agent: the prompt is its standard input, and what it prints is its answer.
state=$(sed -n 's/^LIFECYCLE: //p' | head -n 1)
case ${HORAE_TASK:+task}$state in
task*)
    echo "task $HORAE_TASK completed by $HORAE_AGENT" | tee -a activity.log
    ;;
label)
    line=$(grep -n '^open ' issues.txt | head -n 1)
    [ -n "$line" ] || { echo "NO-WORK: no open issue"; exit 0; }
    number=${line%%:*}
    case $line in
    *crash* | *fail* | *error*) label=bug ;;
    *how* | *where*) label=question ;;
    *) label=feature ;;
    esac
    sed "${number}s/^open/$label/" issues.txt > issues.new && mv issues.new issues.txt
    sed -n "${number}s/^/label /p" issues.txt | tee -a activity.log
    ;;
*)
    echo "labels:$(cut -d ' ' -f 1 issues.txt | sort | uniq -c | awk '{ printf " %s %s", $1, $2 }')"
    ;;
esac
